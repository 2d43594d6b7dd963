package relay

import (
	"context"
	"errors"
	"time"
)

// Message is a message as it is stored.
type Message struct {
	Seq         int64 // its place in the outbox
	EventID     string
	OrderID     string
	Type        string
	Version     int64
	Payload     []byte // the whole envelope
	TraceParent string // W3C trace context, "" for none
	TraceState  string
	CreatedAt   time.Time
	Tried       bool // it was blocked before, and is tried again
}

func (m *Message) bytes() int64 {
	return int64(len(m.Payload)+len(m.OrderID)+len(m.EventID)+len(m.TraceParent)+len(m.TraceState)) + 300
}

// Sighting says that an order has a message.
type Sighting struct {
	Seq     int64
	OrderID string
}

// Blocked is a message that can never be published as it is: it holds its order back.
type Blocked struct {
	Message *Message
	Reason  Reason
	Detail  string
}

// Waiting is a message that was tried, and has no acknowledgement yet.
type Waiting struct {
	Message *Message // nil for none
	Since   time.Time
	Trouble string // its last failure, "" for none
}

// Standing is what is known of the blocked messages.
type Standing struct {
	Orders int64  // that are held back
	Order  string // the first of them
	Detail string // and why
}

// Queue is one relay's right to publish, and the messages. Nobody else has it
// meanwhile. It is used by one goroutine at a time, and every error but those of ctx and ErrTooSlow means that it is lost.
// No method takes long: each has a deadline of its own.
type Queue interface {
	// Discover names orders with messages numbered after..upTo that nothing
	// blocks, by number, at most limit of them; an order can be there several times.
	Discover(ctx context.Context, after, upTo int64, limit int) ([]Sighting, error)
	// Load hands over the messages of orders, order by order, the first perOrder versions of each in
	// their order, until they hold maxBytes as they are stored, or take returns false. Then cut is true.
	// Blocked orders have none.
	Load(ctx context.Context, orders []string, perOrder int, maxBytes int64, take func(*Message) bool) (cut bool, err error)
	// Remove deletes messages that were acknowledged. It returns those that it could not delete
	// because somebody holds them, to be tried again.
	Remove(ctx context.Context, seqs []int64) (left []int64, err error)
	// Block records messages that hold their orders back from now on.
	Block(ctx context.Context, blocked []Blocked) error
	// Release has blocked messages tried again that are too large for a topic which takes less than limit
	// bytes. It releases at most a few hundred at once and returns how many.
	Release(ctx context.Context, limit int64) (released int, err error)
	// Standing reads what is blocked.
	Standing(ctx context.Context) (Standing, error)
	// Await returns when a message was stored, or after a while. It reports which.
	Await(ctx context.Context, atMost time.Duration) (notified bool, err error)
	// Close gives the right back. It does not block for long.
	Close()
}

// ErrStandby says that another relay has the queue.
var ErrStandby = errors.New("another relay publishes this outbox")

// ErrTooSlow says that the database ended a statement at its deadline, and the queue is still held. A smaller
// portion may get through.
var ErrTooSlow = errors.New("the statement took longer than its deadline")

// Topic takes records. Its methods may be called from several goroutines.
type Topic interface {
	// Prepare makes sure that records can be published, with a deadline of its own. It is called before
	// the first record and after failures.
	Prepare(ctx context.Context) error
	// Publish queues a record among others and returns at once. done is called once, with nil when all
	// in-sync replicas have it, a *Refusal of the batch that it was in, or another error, which may be the fault
	// of another record.
	Publish(r Record, done func(error))
	// PublishApart publishes records over a connection of their own, within the deadline of a publication. done is
	// called once, with an error or nil for each: a *Refusal, a *Fault, or what is the fault of none of them.
	PublishApart(records []Record, done func([]error))
	// MaxRecordBytes asks how large a record the topic takes, with a deadline of its own.
	MaxRecordBytes(ctx context.Context) (int64, error)
	// Close gives up what is queued and calls what was not called of the done functions.
	Close()
}
