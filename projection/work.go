package projection

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orderprojector/orderprojector/domain/order"
)

// work is what a transaction does to one order: the row as it was read, the row as it
// will be, and what is kept beside it.
type work struct {
	orderID string
	items   []*item
	base    *Row // as stored; nil when there is no row
	row     *Row // as decided so far; base until the first change
	// locked says that base was read under a lock, so that everything may be
	// decided on it. Only appends and repeats may trust memory.
	locked bool

	appended int
	// parked is a window on the order's waiting events, in the order of their
	// turns. Behind it, the store holds more when more is set, none of a lower version than
	// first; beyond are new ones that belong behind the window.
	parked   []*ParkedEvent
	more     bool
	first    int64
	beyond   []*ParkedEvent
	unparked []*ParkedEvent
	letters  []*DeadLetter // new ones
	open     []OpenLetter  // stored ones that block
	// unfinished says that the next parked event is due, but beyond the turn's budget.
	unfinished bool
	overtake   []int64 // of those, the ones that are overtaken

	decisions []OperatorDecision // those that stand; read for locked rows only
	effective map[*item]*item    // items as the decisions have them
}

func newWork(orderID string, base *Row) *work {
	w := &work{orderID: orderID}
	w.reset(base, false)
	return w
}

// reset starts anew from a row.
func (w *work) reset(base *Row, locked bool) {
	*w = work{orderID: w.orderID, items: w.items, base: base, row: base, locked: locked}
	if base == nil {
		w.row = newRow(w.orderID)
	}
}

// written takes the decided row as the stored one, after a write whose guard held.
func (w *work) written() {
	w.base, w.appended = w.row, 0
}

// change returns the decided row for changing; the first time it is a copy,
// because the stored one is shared.
func (w *work) change() *Row {
	if w.row == w.base {
		copied := *w.row
		w.row = &copied
	}
	return w.row
}

// append applies an event.
func (w *work) append(env *Envelope, rec *Record, next order.Order) {
	row := w.change()
	row.Order = next
	row.LastEventID = env.EventID
	row.UpdatedAt = env.OccurredAt
	if row.CreatedAt.IsZero() {
		row.CreatedAt = env.OccurredAt
	}
	row.Topic, row.Partition, row.Offset = rec.Topic, rec.Partition, rec.Offset
	w.appendEntry(LedgerEntry{
		Version: env.Version, EventID: env.EventID, Type: env.Type, State: next.State, OccurredAt: env.OccurredAt,
		Digest: env.Digest, Partition: rec.Partition, Offset: rec.Offset,
	})
}

// ledgerRoom is how many entries a ledger gets room for beyond those that are known to come.
const ledgerRoom = 4

// appendEntry adds the next version to the ledger.
func (w *work) appendEntry(entry LedgerEntry) {
	row := w.change()
	if n := len(row.Ledger); n == cap(row.Ledger) && w.appended == 0 {
		// Room for what comes next, of this batch and later ones. The entries that are there are shared with
		// the stored row; what is behind them belongs to whoever appends first, which is
		// one partition: a row that a store or a cache hands out twice has no room.
		row.Ledger = append(make([]LedgerEntry, 0, n+max(len(w.items), min(n, ledgerRoom))+1), row.Ledger...)
	}
	row.Version = entry.Version
	row.Ledger = append(row.Ledger, entry)
	w.appended++
}

func (w *work) parkItem(it *item) {
	w.park(&ParkedEvent{
		OrderID: w.orderID, Version: it.env.Version, EventID: it.env.EventID, Digest: it.env.Digest,
		Type: it.env.Type, OccurredAt: it.env.OccurredAt, Record: *it.rec,
	})
}

// park keeps an event until its turn comes. An event that waits already stays as it is.
func (w *work) park(p *ParkedEvent) {
	i, found := slices.BinarySearchFunc(w.parked, p, compareParked)
	if found {
		return
	}
	same := func(other *ParkedEvent) bool { return other.EventID == p.EventID && other.Digest == p.Digest }
	for j := i; j < len(w.parked) && w.parked[j].Version == p.Version; j++ {
		if same(w.parked[j]) {
			return
		}
	}
	for j := i - 1; j >= 0 && w.parked[j].Version == p.Version; j-- {
		if same(w.parked[j]) {
			return
		}
	}
	if w.more && i == len(w.parked) {
		w.beyond = append(w.beyond, p)
		w.first = min(w.first, p.Version)
		return
	}
	w.parked = slices.Insert(w.parked, i, p)
}

func compareParked(a, b *ParkedEvent) int {
	return cmp.Or(
		cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.Record.Partition, b.Record.Partition),
		cmp.Compare(a.Record.Offset, b.Record.Offset),
		strings.Compare(a.EventID, b.EventID),
		slices.Compare(a.Digest[:], b.Digest[:]),
	)
}

// takeDue removes and returns the first parked event whose turn has come, or nil.
func (w *work) takeDue() *ParkedEvent {
	if !w.isDue() {
		return nil
	}
	p := w.parked[0]
	w.parked = w.parked[1:]
	if p.stored {
		w.unparked = append(w.unparked, p)
	}
	return p
}

// isDue reports whether the turn of the window's first event has come.
func (w *work) isDue() bool { return len(w.parked) > 0 && w.parked[0].Version <= w.row.Version+1 }

// due reports whether the turn of an event behind the window may have come.
func (w *work) due() bool {
	return len(w.parked) == 0 && w.more && w.first <= w.row.Version+1
}

// keep adds a dead letter.
func (w *work) keep(letter *DeadLetter) { w.letters = append(w.letters, letter) }

// settle closes the letters that have been overtaken and works out the status.
func (w *work) settle() {
	version := w.row.Version
	blocked := false
	w.open = slices.DeleteFunc(w.open, func(l OpenLetter) bool {
		if l.Version <= version {
			w.overtake = append(w.overtake, l.ID)
			return true
		}
		blocked = blocked || l.Version == version+1
		return false
	})
	for _, l := range w.letters {
		if l.Blocks && l.Version <= version {
			l.Superseded = true
		}
		blocked = blocked || l.Blocks && l.Version == version+1
	}
	status := StatusOK
	switch {
	case blocked:
		status = StatusBlocked
	case len(w.parked) > 0 || w.more || len(w.beyond) > 0:
		status = StatusWaiting
	}
	if status != w.row.Status {
		row := w.change()
		row.Status = status
		row.Revision++
	}
}

// write returns the change of the row, or false when there is none.
func (w *work) write() (rw RowWrite, changed bool) {
	if w.row == w.base || (w.base == nil && w.appended == 0) {
		return rw, false
	}
	rw = RowWrite{Insert: w.base == nil, Row: w.row, Appended: w.row.Ledger[len(w.row.Ledger)-w.appended:]}
	if w.base != nil {
		rw.BaseVersion, rw.BaseRevision = w.base.Version, w.base.Revision
	}
	if surplus := len(w.row.Ledger) - ledgerInRow; surplus > 0 {
		rw.Archive = w.row.Ledger[:surplus]
		w.row.Ledger = w.row.Ledger[surplus:]
		w.row.Archived += int64(surplus)
	}
	return rw, true
}

// newlyParked returns the parked events that the store does not hold yet.
func (w *work) newlyParked() []*ParkedEvent {
	if len(w.parked) == 0 && len(w.beyond) == 0 {
		return nil
	}
	fresh := slices.Clone(w.beyond)
	for _, p := range w.parked {
		if !p.stored {
			fresh = append(fresh, p)
		}
	}
	return fresh
}
