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
}

func (m *Message) bytes() int64 { return int64(len(m.Payload)+len(m.OrderID)+len(m.EventID)) + 300 }

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

// Standing is what is known of the blocked messages.
type Standing struct {
	Orders int64  // that are held back
	Order  string // the first of them
	Detail string // and why
}

// Queue is one relay's right to publish, and the messages. Nobody else has it
// meanwhile. It is used by one goroutine at a time, and every error but those of ctx means that it is lost.
// No method takes long: each has a deadline of its own.
type Queue interface {
	// Discover names orders with messages numbered after..upTo that nothing
	// blocks, by number, at most limit of them; an order can be there several times.
	Discover(ctx context.Context, after, upTo int64, limit int) ([]Sighting, error)
	// Load hands over the messages of orders, order by order, the first perOrder versions of each in
	// their order, until take returns false. Blocked orders have none.
	Load(ctx context.Context, orders []string, perOrder int, take func(*Message) bool) error
	// Remove deletes messages that were acknowledged. It returns those that it could not delete
	// because somebody holds them, to be tried again.
	Remove(ctx context.Context, seqs []int64) (left []int64, err error)
	// Block records messages that hold their orders back from now on.
	Block(ctx context.Context, blocked []Blocked) error
	// Standing reads what is blocked.
	Standing(ctx context.Context) (Standing, error)
	// Await returns when a message was stored, or after a while. It reports which.
	Await(ctx context.Context, atMost time.Duration) (notified bool, err error)
	// Close gives the right back. It does not block for long.
	Close()
}

// ErrStandby says that another relay has the queue.
var ErrStandby = errors.New("another relay publishes this outbox")

// Topic takes records. Publish may be called from several goroutines.
type Topic interface {
	// Prepare makes sure that records can be published, with a deadline of its own. It is called before
	// the first record and after failures.
	Prepare(ctx context.Context) error
	// Publish queues a record and returns at once. done is called once, with nil when all
	// in-sync replicas have it, a *Refusal when this record can never be published, or another error.
	Publish(r Record, done func(error))
	// Close gives up what is queued and calls what was not called of the done functions.
	Close()
}
