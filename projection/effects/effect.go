package effects

import (
	"context"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// Effect is a consumer: what it makes of events. T is the transaction that it needs.
type Effect[T Tx] interface {
	// Name names the consumer in the relation consumed_events.
	Name() string
	// Policy says what a replay may do.
	Policy() Policy
	// Wants reports whether events of a type concern the consumer. Others are passed by.
	Wants(t order.Type) bool
	// Apply writes the effects of events in a transaction, and says for each what came of it. Their event IDs
	// differ, and none is consumed yet; their order is that of the partition. An error concerns all of them: the transaction
	// rolls back and is tried again, or narrowed down to the record that the database refuses.
	Apply(ctx context.Context, tx T, events []*Event) ([]Verdict, error)
}

// Suppressor is an Effect of policy Suppress.
type Suppressor[T Tx] interface {
	// Suppress records events that are read again without their effect. It is like Apply otherwise.
	Suppress(ctx context.Context, tx T, events []*Event) ([]Verdict, error)
}

// Observer is an Effect that wants to know what has been committed.
type Observer interface {
	// Committed is called with the events that a committed transaction has applied. It must not block.
	Committed(events []*Event)
}

// Event is an event on its way to its effect.
type Event struct {
	projection.Envelope
	Record *projection.Record
	// New says that the record came into the log after this member had got its partition, so
	// that nobody can have dealt with it before.
	New bool
	// Repeated says that the record was dealt with before, by this member or as Kafka's committed offset says, although the
	// database does not know of it any more: it lost commits.
	Repeated bool
}

// Verdict is what an effect says of one event.
type Verdict struct {
	// Outcome is Applied, or Duplicate where another event had the same effect, or why the event becomes a dead letter:
	// Invalid, Conflict or Illegal.
	Outcome projection.Outcome
	Detail  string // why, for a dead letter; opens with the cause
	// Err, when it is not nil, says that the effect failed for a reason of this event's own that may pass. The transaction
	// rolls back. The event is held and tried again while others go on. Outcome does not count then.
	Err error
}
