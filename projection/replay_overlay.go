package projection

import (
	"context"
	"errors"
	"math"
	"slices"
)

// overlay is a Store that reads another one and keeps what is written to itself:
// each transaction of the other is rolled back, and takes no locks in it. A dry run decides on it
// exactly as the projector would, with what it decided before in sight. Memory grows with what is
// written. It is used by one goroutine.
type overlay struct {
	Store
	marks    map[TopicPartition]Watermark
	rows     map[string]*Row
	archived map[string][]ArchivedEntry
	parked   map[string][]*ParkedEvent
	unparked map[string][]*ParkedEvent
	letters  map[string][]OpenLetter // new ones that block
	closed   map[int64]bool

	lastLetter int64
}

func newOverlay(store Store, marks map[TopicPartition]Watermark) *overlay {
	return &overlay{
		Store: store, marks: marks, rows: map[string]*Row{}, archived: map[string][]ArchivedEntry{},
		parked: map[string][]*ParkedEvent{}, unparked: map[string][]*ParkedEvent{}, letters: map[string][]OpenLetter{}, closed: map[int64]bool{},
	}
}

// InTx implements Store.
func (o *overlay) InTx(ctx context.Context, work func(context.Context, Tx) error) error {
	var t *overlayTx
	err := o.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
		t = &overlayTx{Tx: tx, o: o}
		if err := work(ctx, t); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	if t != nil {
		for _, undo := range slices.Backward(t.undo) {
			undo()
		}
	}
	return err
}

type overlayTx struct {
	Tx
	o    *overlay
	undo []func()
}

// set changes an entry of the overlay until the transaction fails.
func set[K comparable, V any](t *overlayTx, m map[K]V, key K, value V) {
	before, was := m[key]
	t.undo = append(t.undo, func() {
		if was {
			m[key] = before
		} else {
			delete(m, key)
		}
	})
	m[key] = value
}

// without returns the events that are not the one given; the list itself stays as it is.
func without(events []*ParkedEvent, p *ParkedEvent) []*ParkedEvent {
	return slices.DeleteFunc(slices.Clone(events), func(q *ParkedEvent) bool { return sameParked(p, q) })
}

// Watermark implements Tx.
func (t *overlayTx) Watermark(_ context.Context, key WatermarkKey) (Watermark, bool, error) {
	mark, found := t.o.marks[key.TopicPartition]
	return mark, found, nil
}

// InsertWatermark implements Tx.
func (t *overlayTx) InsertWatermark(context.Context, WatermarkKey, int64) error { return nil }

// AdvanceWatermark implements Tx.
func (t *overlayTx) AdvanceWatermark(context.Context, WatermarkKey, int64, Counts, int64) error {
	return nil
}

// Rows implements Tx.
func (t *overlayTx) Rows(ctx context.Context, orderIDs []string) (map[string]*Row, error) {
	all := make(map[string]*Row, len(orderIDs))
	var unknown []string
	for _, id := range orderIDs {
		if row := t.o.rows[id]; row != nil {
			all[id] = row
		} else {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return all, nil
	}
	rows, err := t.Tx.Rows(ctx, unknown)
	for id, row := range rows {
		all[id] = row
	}
	return all, err
}

// LockRows implements Tx, without a lock.
func (t *overlayTx) LockRows(ctx context.Context, orderIDs []string) (map[string]*Row, error) {
	rows, err := t.Rows(ctx, orderIDs)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, id := range orderIDs {
		if rows[id] == nil {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return rows, nil
	}
	decisions, err := t.Decisions(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, id := range missing {
		row := newRow(id)
		row.Decided = len(decisions[id]) > 0
		rows[id] = row
		set(t, t.o.rows, id, row)
	}
	return rows, nil
}

// Archive implements Tx.
func (t *overlayTx) Archive(ctx context.Context, asked []ArchiveKey) ([]ArchivedEntry, error) {
	all, err := t.Tx.Archive(ctx, asked)
	for _, key := range asked {
		for _, e := range t.o.archived[key.OrderID] {
			if e.Version == key.Version || e.EventID == key.EventID {
				all = append(all, e)
			}
		}
	}
	return all, err
}

// Write implements Tx.
func (t *overlayTx) Write(ctx context.Context, writes []*RowWrite) ([]bool, error) {
	ids := make([]string, len(writes))
	for i, w := range writes {
		ids[i] = w.Row.OrderID
	}
	rows, err := t.Rows(ctx, ids)
	if err != nil {
		return nil, err
	}
	decisions, err := t.Decisions(ctx, ids)
	if err != nil {
		return nil, err
	}
	held := make([]bool, len(writes))
	for i, w := range writes {
		id := w.Row.OrderID
		row := rows[id]
		if w.Insert {
			held[i] = row == nil && len(decisions[id]) == 0
		} else {
			held[i] = row != nil && row.Version == w.BaseVersion && row.Revision == w.BaseRevision
		}
		if !held[i] {
			continue
		}
		copied := *w.Row
		copied.Ledger = slices.Clip(copied.Ledger) // it is handed out more than once: see appendEntry
		set(t, t.o.rows, id, &copied)
		archived := slices.Clone(t.o.archived[id])
		for _, e := range w.Archive {
			archived = append(archived, ArchivedEntry{id, e})
		}
		if len(archived) > 0 {
			set(t, t.o.archived, id, archived)
		}
	}
	return held, nil
}

// Stuck implements Tx.
func (t *overlayTx) Stuck(ctx context.Context, orderIDs []string) (map[string]*Stuck, error) {
	all, err := t.Tx.Stuck(ctx, orderIDs)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = map[string]*Stuck{}
	}
	for _, id := range orderIDs {
		s := all[id]
		if s == nil {
			s = &Stuck{}
		}
		s.Letters = slices.DeleteFunc(append(s.Letters, t.o.letters[id]...), func(l OpenLetter) bool { return t.o.closed[l.ID] })
		if len(t.o.parked[id]) > 0 || len(t.o.unparked[id]) > 0 {
			s.FirstParked = 0
			first, _, err := t.Parked(ctx, id, nil, 1, math.MaxInt64)
			if err != nil {
				return nil, err
			}
			if len(first) > 0 {
				s.FirstParked = first[0].Version
			}
		}
		if delete(all, id); s.FirstParked > 0 || len(s.Letters) > 0 {
			all[id] = s
		}
	}
	return all, nil
}

// Parked implements Tx.
func (t *overlayTx) Parked(ctx context.Context, orderID string, after *ParkedEvent, limit int, maxBytes int64) ([]*ParkedEvent, bool, error) {
	gone := t.o.unparked[orderID]
	stored, more, err := t.Tx.Parked(ctx, orderID, after, limit+len(gone), maxBytes)
	if err != nil {
		return nil, false, err
	}
	last := len(stored) - 1
	for _, p := range t.o.parked[orderID] {
		// What the store has beyond what it gave may come before what the overlay has.
		if (after == nil || compareParked(p, after) > 0) && (!more || compareParked(p, stored[last]) < 0) {
			copied := *p
			stored = append(stored, &copied)
		}
	}
	stored = slices.DeleteFunc(stored, func(p *ParkedEvent) bool {
		return slices.ContainsFunc(gone, func(g *ParkedEvent) bool { return sameParked(p, g) })
	})
	slices.SortFunc(stored, compareParked)
	stored = slices.CompactFunc(stored, sameParked)
	return stored[:min(len(stored), limit)], more || len(stored) > limit, nil
}

func sameParked(a, b *ParkedEvent) bool {
	return a.Version == b.Version && a.EventID == b.EventID && a.Digest == b.Digest
}

// Park implements Tx.
func (t *overlayTx) Park(_ context.Context, _ string, events []*ParkedEvent) error {
	for _, p := range events {
		copied := *p
		set(t, t.o.parked, p.OrderID, append(slices.Clone(t.o.parked[p.OrderID]), &copied))
		set(t, t.o.unparked, p.OrderID, without(t.o.unparked[p.OrderID], p))
	}
	return nil
}

// Unpark implements Tx.
func (t *overlayTx) Unpark(_ context.Context, events []*ParkedEvent) error {
	for _, p := range events {
		set(t, t.o.parked, p.OrderID, without(t.o.parked[p.OrderID], p))
		set(t, t.o.unparked, p.OrderID, append(slices.Clone(t.o.unparked[p.OrderID]), p))
	}
	return nil
}

// AddLetters implements Tx. Below the watermark only parked events that are released make any.
func (t *overlayTx) AddLetters(_ context.Context, letters []*DeadLetter) error {
	for _, l := range letters {
		if l.Blocks && !l.Superseded {
			open := slices.Clone(t.o.letters[l.OrderID])
			t.o.lastLetter-- // no stored letter has such an ID
			set(t, t.o.letters, l.OrderID, append(open, OpenLetter{ID: t.o.lastLetter, Version: l.Version}))
		}
	}
	return nil
}

// Supersede implements Tx.
func (t *overlayTx) Supersede(_ context.Context, letterIDs []int64) error {
	for _, id := range letterIDs {
		set(t, t.o.closed, id, true)
	}
	return nil
}
