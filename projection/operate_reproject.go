package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// reprojectTail is how many offsets may be left to read, over all partitions, when
// the members are made to wait for the last of them.
const reprojectTail = 5000

// ReprojectResult is what folding an order anew did, or would do.
type ReprojectResult struct {
	Before  Standing `json:"before"`
	After   Standing `json:"after"`
	Records int      `json:"records"` // of the order, that were folded
	Parked  int      `json:"parked_events"`
	// Letters are the dead letters whose status changes.
	Letters []LetterMove `json:"dead_letters,omitempty"`
}

// LetterMove is a change of a letter's status.
type LetterMove struct {
	LetterID int64        `json:"letter_id,omitempty"` // 0 for one that is new
	Version  int64        `json:"version"`
	From     LetterStatus `json:"from,omitempty"`
	To       LetterStatus `json:"to"`
	Detail   string       `json:"detail,omitempty"`
}

// Reproject folds one order anew from the topic, with the decisions that stand, and
// replaces its row, its archive, its parked events and the status of its letters in one transaction.
// It is refused when the log no longer holds what the ledger was made from.
func (o *Operator) Reproject(ctx context.Context, orderID string, execute bool, by By) (ReprojectResult, error) {
	if err := needComment(by); err != nil {
		return ReprojectResult{}, err
	}
	result, err := o.reproject(ctx, orderID, execute, func(a *action, result *ReprojectResult) error {
		return a.Audit(a.ctx, AuditEntry{
			Actor: by.Actor, Action: "orders.reproject", Target: orderTarget(orderID), Comment: by.Comment, Before: result.Before, After: result.After,
		})
	}, nil, nil)
	if err != nil {
		return result, fmt.Errorf("folding order %s anew: %w", quoted(orderID), err)
	}
	return result, nil
}

// Undo takes a decision back: it is marked as undone, and its order is folded
// anew without it.
func (o *Operator) Undo(ctx context.Context, decisionID int64, execute bool, by By) (OperatorDecision, ReprojectResult, error) {
	var d OperatorDecision
	if err := needComment(by); err != nil {
		return d, ReprojectResult{}, err
	}
	var extra []int64
	lock := func(a *action) (err error) {
		var found bool
		d, found, err = a.LockDecision(a.ctx, decisionID)
		switch {
		case err != nil:
			return fmt.Errorf("locking the decision: %w", err)
		case !found:
			return &NotFoundError{fmt.Sprintf("decision %d", decisionID)}
		case d.Undone != nil:
			return refusedf("", "it was undone already, by %s", d.Undone.Actor)
		}
		if d.LetterID != 0 {
			extra = []int64{d.LetterID} // it may name no order
		}
		return nil
	}
	err := o.do(ctx, false, true, lock)
	if err != nil {
		return d, ReprojectResult{}, fmt.Errorf("undoing decision %d: %w", decisionID, err)
	}
	before := func(a *action) error {
		if err := lock(a); err != nil {
			return err
		}
		return a.UndoDecision(a.ctx, decisionID, by)
	}
	result, err := o.reproject(ctx, d.OrderID, execute, func(a *action, result *ReprojectResult) error {
		return a.Audit(a.ctx, AuditEntry{
			Actor: by.Actor, Action: "decisions.undo", Target: fmt.Sprintf("decision %d", decisionID), Comment: by.Comment,
			Before: map[string]any{"kind": d.Kind, "order_id": d.OrderID, "from_version": d.From, "to_version": d.To, "order": result.Before},
			After:  map[string]any{"undone": true, "order": result.After},
		})
	}, before, &extra)
	if err != nil {
		return d, result, fmt.Errorf("undoing decision %d: %w", decisionID, err)
	}
	return d, result, nil
}

// reproject folds an order anew. before runs once its row is locked, audit at the end.
func (o *Operator) reproject(ctx context.Context, orderID string, execute bool,
	audit func(*action, *ReprojectResult) error, before func(*action) error, extra *[]int64,
) (ReprojectResult, error) {
	var result ReprojectResult
	if o.cfg.Log == nil {
		return result, errors.New("the topic cannot be read")
	}
	c := &collection{o: o, orderID: orderID, records: make(map[place]Record), next: make(map[int32]int64)}
	if err := c.catchUp(ctx); err != nil {
		return result, err
	}
	err := o.do(ctx, execute, false, func(a *action) error {
		result = ReprojectResult{}
		return a.reproject(&result, c, before, extra, audit)
	})
	return result, err
}

// place is where a record is.
type place struct {
	log    TopicPartition
	offset int64
}

// collection holds the records of one order, as far as the topic was read.
type collection struct {
	o       *Operator
	orderID string
	topicID TopicID
	records map[place]Record
	next    map[int32]int64 // by partition: everything below was looked at
	start   map[int32]int64 // by partition: the first offset that the log holds
}

// catchUp reads the topic up to the watermarks, until little is left to read.
func (c *collection) catchUp(ctx context.Context) error {
	ranges, err := c.o.cfg.Log.Ranges(ctx, c.o.cfg.Topic)
	if err != nil {
		return fmt.Errorf("reading the topic's bounds: %w", err)
	}
	c.start = make(map[int32]int64)
	for _, r := range ranges {
		c.topicID, c.start[r.Partition], c.next[r.Partition] = r.TopicID, r.From, r.From
	}
	for range 10 {
		var marks map[int32]int64
		err := c.o.do(ctx, false, true, func(a *action) (err error) {
			marks, err = a.LockWatermarks(a.ctx, c.o.cfg.Group, c.o.cfg.Topic, c.topicID)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the watermarks: %w", err)
		}
		left := c.left(marks)
		if err := c.read(ctx, marks); err != nil {
			return err
		}
		if left <= reprojectTail {
			return nil
		}
	}
	return refusedf("try again when the members are not catching up", "the members read faster than the topic can be read again")
}

func (c *collection) left(marks map[int32]int64) int64 {
	left := int64(0)
	for partition, mark := range marks {
		left += max(0, mark-c.next[partition])
	}
	return left
}

// read reads on, up to the watermarks.
func (c *collection) read(ctx context.Context, marks map[int32]int64) error {
	for _, partition := range slices.Sorted(maps.Keys(marks)) {
		r := LogRange{
			TopicPartition: TopicPartition{Topic: c.o.cfg.Topic, TopicID: c.topicID, Partition: partition},
			From:           c.next[partition], Until: marks[partition],
		}
		if r.From >= r.Until {
			continue
		}
		if err := c.o.cfg.Log.ReadRange(ctx, r, func(rec Record) error { c.take(rec); return nil }); err != nil {
			return fmt.Errorf("reading %s: %w", r.TopicPartition, err)
		}
		c.next[partition] = r.Until
	}
	return nil
}

// take keeps a record of the order. One with the order's key that does not
// say which version it is may have a substitute that does.
func (c *collection) take(rec Record) {
	if rec.Value == nil || rec.Key != nil && string(rec.Key) != c.orderID {
		return
	}
	if rec.Key == nil {
		if it := newItem(c.o.cfg.Decoder, &rec); it.orderID != "" && it.orderID != c.orderID {
			return
		} else if it.orderID == "" && it.invalid.OrderID != "" && it.invalid.OrderID != c.orderID {
			return
		}
	}
	c.records[place{rec.TopicPartition, rec.Offset}] = rec
}

func (a *action) reproject(result *ReprojectResult, c *collection, before func(*action) error, extra *[]int64, audit func(*action, *ReprojectResult) error) error {
	// Members wait here until the order is replaced: none decides on it what
	// was not read, and none adds to it what would be lost.
	marks, err := a.LockWatermarks(a.ctx, a.o.cfg.Group, a.o.cfg.Topic, c.topicID)
	if err != nil {
		return fmt.Errorf("locking the watermarks: %w", err)
	}
	if c.left(marks) > reprojectTail {
		return refusedf("try again", "the members read faster than the topic can be read again")
	}
	if err := c.read(a.ctx, marks); err != nil {
		return err
	}
	row, err := a.row(c.orderID)
	if err != nil {
		return err
	}
	result.Before = standing(row)
	if before != nil {
		if err := before(a); err != nil {
			return err
		}
	}
	decisions, err := a.Decisions(a.ctx, []string{c.orderID})
	if err != nil {
		return fmt.Errorf("reading operators' decisions: %w", err)
	}
	letters, err := a.LettersOf(a.ctx, a.o.cfg.Group, c.orderID)
	if err != nil {
		return fmt.Errorf("reading the order's letters: %w", err)
	}
	if extra != nil && len(*extra) > 0 && !slices.ContainsFunc(letters, func(l *Letter) bool { return l.ID == (*extra)[0] }) {
		more, err := a.Letters(a.ctx, a.o.cfg.Group, *extra)
		if err != nil {
			return fmt.Errorf("reading the decision's letter: %w", err)
		}
		letters = append(letters, more...)
	}
	records, err := a.sources(c, letters)
	if err != nil {
		return err
	}
	t, w, outcomes, err := a.fold(c, records, decisions[c.orderID])
	if err != nil {
		return err
	}
	write := &RowWrite{BaseVersion: row.Version, BaseRevision: row.Revision, Row: w.row}
	w.row.Revision, w.row.Decided = row.Revision+1, len(decisions[c.orderID]) > 0
	write.Appended = w.row.Ledger
	if surplus := len(w.row.Ledger) - ledgerInRow; surplus > 0 {
		write.Archive, w.row.Ledger, w.row.Archived = w.row.Ledger[:surplus], w.row.Ledger[surplus:], int64(surplus)
	}
	if err := a.ReplaceOrder(a.ctx, a.o.cfg.Group, write, w.parked); err != nil {
		return fmt.Errorf("replacing the order: %w", err)
	}
	if err := a.settleLetters(result, t, w, letters, outcomes); err != nil {
		return err
	}
	if err := a.releaseFolded(c.orderID, outcomes); err != nil {
		return err
	}
	result.After, result.Records, result.Parked = standing(w.row), len(records), len(w.parked)
	return audit(a, result)
}

// sources joins what the log holds with the records that the database keeps, and
// checks that nothing is missing that the ledger was made from.
func (a *action) sources(c *collection, letters []*Letter) ([]Record, error) {
	all := maps.Clone(c.records)
	add := func(rec Record) {
		at := place{rec.TopicPartition, rec.Offset}
		if _, ok := all[at]; !ok {
			all[at] = rec
		}
	}
	for _, l := range letters {
		if l.Record.Value != nil {
			add(l.Record)
		}
	}
	var after *ParkedEvent
	for {
		parked, more, err := a.Parked(a.ctx, c.orderID, after, parkedPerStep, parkedBytes)
		if err != nil {
			return nil, fmt.Errorf("reading parked events: %w", err)
		}
		for _, p := range parked {
			add(p.Record)
		}
		if !more || len(parked) == 0 {
			break
		}
		after = parked[len(parked)-1]
	}
	held := make(map[coordinate]bool, len(all))
	records := make([]Record, 0, len(all))
	for at, rec := range all {
		held[coordinate{at.log.Partition, at.offset}] = true
		records = append(records, rec)
	}
	slices.SortFunc(records, func(x, y Record) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	ledger, err := a.Ledger(a.ctx, c.orderID)
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	for i := range ledger {
		e := &ledger[i]
		if !e.Skipped() && !held[coordinate{e.Partition, e.Offset}] {
			return nil, refusedf("restore the records, or leave the order as it is: it cannot be made again without them",
				"the log no longer holds version %d (event %s, partition %d offset %d; the log begins at %d)",
				e.Version, quoted(e.EventID), e.Partition, e.Offset, c.start[e.Partition])
		}
	}
	return records, nil
}

// fold decides all records of an order in memory, from nothing. outcomes are their first decisions.
func (a *action) fold(c *collection, records []Record, decisions []OperatorDecision) (t *turn, w *work, outcomes map[place]Outcome, err error) {
	for {
		outcomes = make(map[place]Outcome, len(records))
		w = newWork(c.orderID, nil)
		w.locked, w.decisions = true, decisions
		w.base = w.row // of version 0; it is not written, but replaced
		t = &turn{
			group: a.o.cfg.Group, decoder: a.o.cfg.Decoder, older: a.older, budget: unbounded(),
			sorted: []*work{w},
		}
		if err := t.drain(a.ctx, w); err != nil {
			return nil, nil, nil, err
		}
		for i := range records {
			it := newItem(a.o.cfg.Decoder, &records[i])
			if it.orderID != c.orderID && w.substituted(t.decoder, &it).orderID != c.orderID {
				continue // its letter, if it has one, is of no version
			}
			if err := t.decideItem(a.ctx, w, &it); err != nil {
				return nil, nil, nil, err
			}
			outcomes[place{it.rec.TopicPartition, it.rec.Offset}] = it.outcome
		}
		if len(t.missing) > 0 {
			a.recall(c, t.missing)
			continue
		}
		w.settle()
		if w.row == w.base {
			w.change()
		}
		return t, w, outcomes, nil
	}
}

// recall decodes records again that the fold has to compare with: they are at hand.
func (a *action) recall(c *collection, missing map[coordinate]struct{}) {
	for at := range missing {
		a.older[at] = nil
		rec, ok := c.records[place{TopicPartition{c.o.cfg.Topic, c.topicID, at.partition}, at.offset}]
		if !ok {
			continue
		}
		if env, invalid := decode(a.o.cfg.Decoder, &rec); invalid == nil {
			a.older[at] = &env
		}
	}
}

// settleLetters gives the order's letters the status that the fold has for
// them, and writes those that are new.
func (a *action) settleLetters(result *ReprojectResult, t *turn, w *work, letters []*Letter, outcomes map[place]Outcome) error {
	want := make(map[place]*DeadLetter, len(w.letters))
	for _, l := range w.letters {
		want[place{l.Record.TopicPartition, l.Record.Offset}] = l
	}
	ids := make([]int64, len(letters))
	for i, l := range letters {
		ids[i] = l.ID
	}
	states, err := a.LockLetters(a.ctx, ids)
	if err != nil {
		return fmt.Errorf("locking letters: %w", err)
	}
	var changes []LetterChange
	for _, l := range letters {
		at := place{l.Record.TopicPartition, l.Record.Offset}
		folded := want[at]
		delete(want, at)
		if it := newItem(a.o.cfg.Decoder, &l.Record); it.invalid != nil && w.substituted(t.decoder, &it).orderID != w.orderID {
			folded = invalidLetter(a.o.cfg.Group, &it) // of no version: the order has nothing to say about it
		}
		state := states[l.ID]
		change := LetterChange{ID: l.ID, Attempts: state.Attempts, Status: settledStatus(state.Status, folded, outcomes[at])}
		if folded != nil && (folded.Reason != l.Reason || folded.Blocks != l.Blocks || folded.Detail != l.Detail) {
			change.Refused = folded
		} else if change.Status == state.Status {
			continue
		}
		changes = append(changes, change)
		if change.Status != state.Status {
			result.Letters = append(result.Letters, LetterMove{LetterID: l.ID, Version: l.Version, From: state.Status, To: change.Status, Detail: l.Detail})
		}
	}
	if err := a.ChangeLetters(a.ctx, changes); err != nil {
		return fmt.Errorf("writing letters: %w", err)
	}
	var added []*DeadLetter
	for _, l := range w.letters {
		if want[place{l.Record.TopicPartition, l.Record.Offset}] == l {
			added = append(added, l)
			status := LetterOpen
			if l.Superseded {
				status = LetterSuperseded
			}
			result.Letters = append(result.Letters, LetterMove{Version: l.Version, To: status, Detail: l.Detail})
		}
	}
	if len(added) == 0 {
		return nil
	}
	if err := a.AddLetters(a.ctx, added); err != nil {
		return fmt.Errorf("writing dead letters: %w", err)
	}
	return nil
}

// settledStatus is the status of a stored letter after the fold: folded is the letter that the
// fold made of the same record, nil when it was not refused. One that is parked now is redriven
// whatever it was, so that it opens again should it be refused when its turn comes.
func settledStatus(was LetterStatus, folded *DeadLetter, first Outcome) LetterStatus {
	switch {
	case folded == nil && (was != LetterDiscarded || first == Parked || first == Applied):
		return LetterRedriven
	case folded == nil, was.Waits() && !folded.Superseded:
		return was
	case was == LetterDiscarded && (folded.Superseded || !folded.Blocks):
		return was
	case folded.Superseded:
		return LetterSuperseded
	}
	return LetterOpen
}

// releaseFolded takes the order's held records out of their queues that the fold has decided.
func (a *action) releaseFolded(orderID string, outcomes map[place]Outcome) error {
	held, err := a.HeldOf(a.ctx, a.o.cfg.Group, orderID)
	if err != nil {
		return fmt.Errorf("reading the order's held records: %w", err)
	}
	for _, h := range held {
		outcome, folded := outcomes[place{h.Record.TopicPartition, h.Record.Offset}]
		if !folded {
			continue
		}
		if err := leave(a.ctx, a, a.o.cfg.Group, h, outcome); err != nil {
			return err
		}
	}
	return nil
}
