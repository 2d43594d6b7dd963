package projection

import (
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
)

// LedgerInRow is how many of an order's newest ledger entries its row keeps;
// older ones are archived, so that the row, and the cost of the next event, stays small.
const LedgerInRow = 64

// ledgerInRow is LedgerInRow outside of simulations, which reach the archive sooner.
var ledgerInRow = LedgerInRow

// TypeSkipped marks a ledger entry whose version an operator decided to skip.
const TypeSkipped = "skipped"

// LedgerEntry is the proof of one applied event: who it was, what it led to
// and where its record is.
type LedgerEntry struct {
	Version    int64
	EventID    string // empty for a skipped version
	Type       string // as written by the producer, or TypeSkipped
	State      order.State
	OccurredAt time.Time
	Digest     Digest
	Partition  int32
	Offset     int64
}

// Skipped reports whether the version was skipped by an operator's decision.
func (e *LedgerEntry) Skipped() bool { return e.Type == TypeSkipped }

// Status says whether an order is up to date.
type Status string

// The statuses of an order.
const (
	StatusOK      Status = "ok"
	StatusWaiting Status = "waiting" // later events are parked behind a missing version
	StatusBlocked Status = "blocked" // the next version is a dead letter
)

// Row is an order's row: its state and the newest part of its ledger.
type Row struct {
	OrderID  string
	Version  int64
	Revision int64
	order.Order
	CreatedAt   time.Time // time of the first applied event; zero while all versions were skipped
	UpdatedAt   time.Time // time of the last one
	LastEventID string
	Status      Status
	Topic       string // coordinates of the last applied event
	Partition   int32
	Offset      int64
	Archived    int64 // ledger entries that are no longer in the row
	// Decided says that there are, or were, operators' decisions about the order: it is decided on its locked row only.
	Decided bool
	// Ledger holds the newest entries, in version order and without holes; the
	// last one has Version. Its entries are never changed in place: rows share them.
	Ledger []LedgerEntry
}

// WaitingFor is the version that the order waits for, or 0.
func (r *Row) WaitingFor() int64 {
	if r.Status == StatusOK {
		return 0
	}
	return r.Version + 1
}

// Entry returns the row's ledger entry of that version, or nil when it is
// archived or does not exist.
func (r *Row) Entry(version int64) *LedgerEntry {
	i := int64(len(r.Ledger)) - 1 - (r.Version - version)
	if version < 1 || i < 0 || i >= int64(len(r.Ledger)) {
		return nil
	}
	return &r.Ledger[i]
}

// EntryOf returns the row's ledger entry of that event ID, or nil.
func (r *Row) EntryOf(eventID string) *LedgerEntry {
	if eventID == "" {
		return nil // skipped versions have none
	}
	last := len(eventID) - 1
	for i := len(r.Ledger) - 1; i >= 0; i-- {
		// IDs that grow with time differ in their last bytes first.
		if id := r.Ledger[i].EventID; len(id) == last+1 && id[last] == eventID[last] && id == eventID {
			return &r.Ledger[i]
		}
	}
	return nil
}

// weight estimates the memory a cached row holds, in bytes.
func (r *Row) weight() int64 {
	const entry = 112
	w := int64(400 + len(r.OrderID) + len(r.CustomerID) + cap(r.Ledger)*entry)
	for i := range r.Ledger {
		w += int64(len(r.Ledger[i].EventID))
	}
	return w
}

// newRow is an order of which nothing is applied yet.
func newRow(orderID string) *Row { return &Row{OrderID: orderID, Status: StatusOK} }
