package lettercopy

import (
	"context"
	"errors"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// Letter is a dead letter to be copied.
type Letter struct {
	ID       int64
	Group    string
	Attempts int // how often it died; names the lap of the copy
	Record   projection.Record
	OrderID  string // what is known of it; empty or 0 where it could not be read
	EventID  string
	Version  int64
	Reason   string
	Detail   string

	FirstFailedAt time.Time
	LastFailedAt  time.Time
	CopyFailures  int // attempts at this lap's copy that failed on the letter's own account
}

// Form is what a copy holds of its letter.
type Form string

// The forms.
const (
	Whole Form = "whole"
	// WithoutValue is the copy of a record whose value is too large for the
	// topic: a header says so and names the letter.
	WithoutValue Form = "without_value"
	// NoCopy marks a letter that is too large for the topic even without its value.
	NoCopy Form = "none"
)

// Receipt says what became of a letter's copy.
type Receipt struct {
	Letter *Letter
	// Err is nil when the lap is dealt with. A *Failure is the topic's or the
	// cluster's, everything else is about this letter alone.
	Err  error
	Form Form
	// Topic, Partition and Offset are where the copy is, unless Form is NoCopy.
	Topic     string
	Partition int32
	Offset    int64
	// Reason says why the form is not Whole.
	Reason string
}

// Queue is one session with the letters that are due. It holds the right to
// publish; nobody else has it meanwhile. It is used by one goroutine at a time.
type Queue interface {
	// Due returns up to maxLetters letters that are due, oldest first, and no
	// more once their records hold maxBytes.
	Due(ctx context.Context, maxLetters int, maxBytes int64) ([]*Letter, error)
	// Settle records laps that are dealt with.
	Settle(ctx context.Context, receipts []Receipt) error
	// Postpone records failures of single letters and after what pause to try each again.
	Postpone(ctx context.Context, receipts []Receipt, pauses []time.Duration) error
	// Close gives the right to publish back. It does not block for long.
	Close()
}

// ErrStandby says that somebody else has the right to publish.
var ErrStandby = errors.New("another member publishes the copies of dead letters")

// Topic takes copies. It is used by one goroutine at a time.
type Topic interface {
	// Send writes the letters' copies and returns a receipt for each, in their order.
	// It ends with ctx.
	Send(ctx context.Context, letters []*Letter) []Receipt
}

// Class is the class of a failed copy: a metric label.
type Class string

// The classes.
const (
	TopicMissing Class = "topic_missing"
	Forbidden    Class = "forbidden"
	Broker       Class = "broker"   // away, too slow, or not able to
	Refused      Class = "refused"  // this record, not the topic
	Database     Class = "database" // the list of what is due
)

// Classes lists every class.
func Classes() []Class { return []Class{TopicMissing, Forbidden, Broker, Refused, Database} }

// Failure is what keeps every copy from being written.
type Failure struct {
	Class  Class
	Err    error
	Advice string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Hint says what the operator can do.
func (f *Failure) Hint() string { return f.Advice }
