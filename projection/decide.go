package projection

import (
	"fmt"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Ledger answers what an order's history says beyond its row.
type Ledger interface {
	// Archived returns the archived entry of that version, or nil.
	Archived(orderID string, version int64) *LedgerEntry
	// ArchivedID returns the archived entry of that event ID, or nil.
	ArchivedID(orderID, eventID string) *LedgerEntry
	// Older returns the event that a ledger entry was made from. known is
	// false while nobody has looked; known with a nil envelope means that the record is gone.
	Older(entry *LedgerEntry) (env *Envelope, known bool)
}

// Decision is what an event means for its order.
type Decision struct {
	Outcome Outcome
	Next    order.Order // the order after the event, when Applied
	Detail  string      // why, for the outcomes that make a dead letter
	// Older is set when the decision needs the event that the ledger entry was made
	// from, which nobody has looked up yet. The outcome is not valid then.
	Older *LedgerEntry
}

// Decide says what an event means for the order as it stands. It is pure and
// total: same arguments, same decision, and every envelope has one. The cases
// are tried in the order written here.
func Decide(row *Row, env *Envelope, ledger Ledger) Decision {
	switch {
	case env.Version <= row.Version:
		return decidePast(row, env, ledger)
	case env.Version > row.Version+1:
		return Decision{Outcome: Parked}
	}
	if entry := usedID(row, env.EventID, ledger); entry != nil {
		return Decision{Outcome: Conflict, Detail: fmt.Sprintf(
			"event ID %s is used by version %d of this order, and now by version %d", quoted(env.EventID), entry.Version, env.Version)}
	}
	if env.Event == nil {
		return Decision{Outcome: Unsupported, Detail: fmt.Sprintf("unknown event type or schema version %s", quoted(env.Type))}
	}
	next, err := order.Apply(row.Order, env.Event)
	if err != nil {
		return Decision{Outcome: Illegal, Detail: err.Error()}
	}
	return Decision{Outcome: Applied, Next: next}
}

func decidePast(row *Row, env *Envelope, ledger Ledger) Decision {
	entry := row.Entry(env.Version)
	if entry == nil {
		entry = ledger.Archived(row.OrderID, env.Version)
	}
	switch {
	case entry == nil:
		return Decision{Outcome: Conflict, Detail: fmt.Sprintf("version %d is applied, but the ledger has no entry for it", env.Version)}
	case entry.Skipped():
		return Decision{Outcome: Stale}
	case entry.EventID != env.EventID:
		return Decision{Outcome: Conflict, Detail: fmt.Sprintf(
			"version %d is event %s in the ledger, and event %s here", env.Version, quoted(entry.EventID), quoted(env.EventID))}
	case entry.Digest == env.Digest:
		return Decision{Outcome: Duplicate}
	}
	// Same event ID and version, other bytes: written anew by the producer, or another event?
	older, known := ledger.Older(entry)
	where := fmt.Sprintf("partition %d offset %d", entry.Partition, entry.Offset)
	switch {
	case !known:
		return Decision{Outcome: Conflict, Older: entry}
	case older == nil:
		return Decision{Outcome: Conflict, Detail: "same event ID and version as the record at " + where +
			" with other bytes, and that record is gone, so they cannot be compared"}
	case older.Unreadable != "":
		return Decision{Outcome: Conflict, Detail: "same event ID and version as the record at " + where +
			" with other bytes, and that record is gone (" + older.Unreadable + "), so they cannot be compared"}
	case SameEvent(older, env):
		return Decision{Outcome: Duplicate}
	}
	return Decision{Outcome: Conflict, Detail: "same event ID and version as the record at " + where + ", but another content"}
}

func usedID(row *Row, eventID string, ledger Ledger) *LedgerEntry {
	if entry := row.EntryOf(eventID); entry != nil || row.Archived == 0 {
		return entry
	}
	return ledger.ArchivedID(row.OrderID, eventID)
}
