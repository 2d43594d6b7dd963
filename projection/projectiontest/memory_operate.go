package projectiontest

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/orderprojector/orderprojector/projection"
)

// Decisions returns the operators' decisions that stand.
func (m *Memory) Decisions() []projection.OperatorDecision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.state.decisions), func(d projection.OperatorDecision) bool { return d.Undone != nil })
}

// Audited returns the audit log.
func (m *Memory) Audited() []projection.AuditEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.state.audit)
}

// decided returns the decisions about an order that stand.
func (s *state) decided(orderID string) []projection.OperatorDecision {
	var standing []projection.OperatorDecision
	for _, d := range s.decisions {
		if d.OrderID == orderID && d.Undone == nil {
			standing = append(standing, d)
		}
	}
	return standing
}

func (t *memoryTx) Decisions(_ context.Context, orderIDs []string) (map[string][]projection.OperatorDecision, error) {
	all := map[string][]projection.OperatorDecision{}
	for _, id := range orderIDs {
		if standing := t.decided(id); len(standing) > 0 {
			all[id] = standing
		}
	}
	return all, nil
}

func (t *memoryTx) SubstitutesAt(_ context.Context, log projection.TopicPartition, offsets []int64) ([]projection.OperatorDecision, error) {
	var found []projection.OperatorDecision
	for _, d := range t.decisions {
		if d.ByCoordinates && d.Undone == nil && d.Log == log && slices.Contains(offsets, d.Offset) {
			found = append(found, d)
		}
	}
	return found, nil
}

var _ projection.OperatorStore = (*Memory)(nil)

// InOperatorTx implements projection.OperatorStore.
func (m *Memory) InOperatorTx(ctx context.Context, work func(context.Context, projection.OperatorTx) error) error {
	return m.InTx(ctx, func(ctx context.Context, tx projection.Tx) error { return work(ctx, tx.(*memoryTx)) })
}

func (t *memoryTx) Audit(_ context.Context, entries ...projection.AuditEntry) error {
	t.audit = append(t.audit, entries...)
	return nil
}

func (l *StoredLetter) letter() *projection.Letter {
	return &projection.Letter{DeadLetter: l.DeadLetter, Status: projection.LetterStatus(l.Status), Attempts: l.Attempts}
}

func (t *memoryTx) Letters(_ context.Context, group string, ids []int64) ([]*projection.Letter, error) {
	var found []*projection.Letter
	for i := range t.letters {
		if l := &t.letters[i]; l.Group == group && slices.Contains(ids, l.ID) {
			found = append(found, l.letter())
		}
	}
	return found, nil
}

func (t *memoryTx) LettersOf(_ context.Context, group, orderID string) ([]*projection.Letter, error) {
	var found []*projection.Letter
	for i := range t.letters {
		if l := &t.letters[i]; l.Group == group && l.OrderID == orderID && orderID != "" {
			found = append(found, l.letter())
		}
	}
	return found, nil
}

func (t *memoryTx) LockLetters(_ context.Context, ids []int64) (map[int64]projection.LetterState, error) {
	states := map[int64]projection.LetterState{}
	for i := range t.letters {
		if l := &t.letters[i]; slices.Contains(ids, l.ID) {
			states[l.ID] = projection.LetterState{Status: projection.LetterStatus(l.Status), Attempts: l.Attempts}
		}
	}
	return states, nil
}

func (t *memoryTx) ChangeLetters(_ context.Context, changes []projection.LetterChange) error {
	for _, c := range changes {
		for i := range t.letters {
			l := &t.letters[i]
			if l.ID != c.ID {
				continue
			}
			l.Status, l.Attempts = string(c.Status), c.Attempts
			if r := c.Refused; r != nil {
				l.OrderID, l.Version, l.EventID, l.Type = r.OrderID, r.Version, r.EventID, r.Type
				l.Reason, l.Detail, l.Blocks = r.Reason, r.Detail, r.Blocks
			}
		}
	}
	return nil
}

func (t *memoryTx) selected(group string, s projection.LetterSelection) []projection.LetterTurn {
	var turns []projection.LetterTurn
	for i := range t.letters {
		l := &t.letters[i]
		switch {
		case l.Group != group,
			l.Status != "open" && (l.Status != "exhausted" || len(s.IDs) == 0),
			len(s.IDs) > 0 && !slices.Contains(s.IDs, l.ID),
			s.Reason != "" && l.Reason.String() != s.Reason,
			s.Order != "" && l.OrderID != s.Order,
			s.Topic != "" && l.Record.Topic != s.Topic:
			continue
		}
		turns = append(turns, projection.LetterTurn{OrderID: l.OrderID, Version: l.Version, ID: l.ID})
	}
	slices.SortFunc(turns, compareTurns)
	return turns
}

func compareTurns(a, b projection.LetterTurn) int {
	return cmp.Or(cmp.Compare(a.OrderID, b.OrderID), cmp.Compare(a.Version, b.Version), cmp.Compare(a.ID, b.ID))
}

func (t *memoryTx) SelectLetters(_ context.Context, group string, s projection.LetterSelection, newest int64, after projection.LetterTurn, limit int) ([]projection.LetterTurn, error) {
	turns := slices.DeleteFunc(t.selected(group, s), func(l projection.LetterTurn) bool {
		return l.ID > newest || compareTurns(l, after) <= 0
	})
	return turns[:min(limit, len(turns))], nil
}

func (t *memoryTx) CountLetters(_ context.Context, group string, s projection.LetterSelection) (letters, newest int64, err error) {
	for i := range t.letters {
		newest = max(newest, t.letters[i].ID)
	}
	return int64(len(t.selected(group, s))), newest, nil
}

func (t *memoryTx) AddDecision(_ context.Context, d *projection.OperatorDecision) error {
	t.lastID++
	d.ID = t.lastID
	t.decisions = append(t.decisions, *d)
	if row := t.rows[d.OrderID]; row != nil {
		changed := *row
		changed.Decided, changed.Revision = true, row.Revision+1
		t.rows[d.OrderID] = &changed
	}
	return nil
}

func (t *memoryTx) LockDecision(_ context.Context, id int64) (projection.OperatorDecision, bool, error) {
	for _, d := range t.decisions {
		if d.ID == id {
			return d, true, nil
		}
	}
	return projection.OperatorDecision{}, false, nil
}

func (t *memoryTx) UndoDecision(_ context.Context, id int64, by projection.By) error {
	for i := range t.decisions {
		if t.decisions[i].ID == id {
			t.decisions[i].Undone = &by
		}
	}
	return nil
}

func (t *memoryTx) Ledger(_ context.Context, orderID string) ([]projection.LedgerEntry, error) {
	return t.ledgerOf(orderID), nil
}

func (t *memoryTx) ReplaceOrder(ctx context.Context, group string, w *projection.RowWrite, parked []*projection.ParkedEvent) error {
	stored := t.rows[w.Row.OrderID]
	if stored == nil || stored.Version != w.BaseVersion || stored.Revision != w.BaseRevision {
		return errors.New("the row is not the one that was locked")
	}
	row := *w.Row
	row.Ledger = slices.Clip(row.Ledger)
	t.rows[row.OrderID] = &row
	t.archive[row.OrderID] = map[int64]projection.LedgerEntry{}
	for _, e := range w.Archive {
		t.archive[row.OrderID][e.Version] = e
	}
	delete(t.parked, row.OrderID)
	return t.Park(ctx, group, parked)
}

func (t *memoryTx) LockWatermarks(_ context.Context, group, topic string, id projection.TopicID) (map[int32]int64, error) {
	marks := map[int32]int64{}
	for key, w := range t.marks {
		if key.Group == group && key.Topic == topic && key.TopicID == id {
			marks[key.Partition] = w.NextOffset
		}
	}
	return marks, nil
}

func (t *memoryTx) AddRedriveJob(_ context.Context, job *projection.RedriveJob) error {
	job.ID = int64(len(t.jobs) + 1)
	t.jobs = append(t.jobs, *job)
	return nil
}

func (t *memoryTx) LockRedriveJob(_ context.Context, id int64) (projection.RedriveJob, bool, error) {
	if id < 1 || id > int64(len(t.jobs)) {
		return projection.RedriveJob{}, false, nil
	}
	return t.jobs[id-1], true, nil
}

func (t *memoryTx) SaveRedriveJob(_ context.Context, job *projection.RedriveJob) error {
	t.jobs[job.ID-1] = *job
	return nil
}

func (t *memoryTx) ForgetSkip(_ context.Context, key projection.WatermarkKey) error {
	if w, found := t.marks[key]; found {
		w.SkipFrom, w.SkipTo = 0, 0
		t.marks[key] = w
	}
	return nil
}

// SkipOffsets moves a watermark forward, as an operator does it.
func (m *Memory) SkipOffsets(key projection.WatermarkKey, to, committed int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.state.marks[key]
	w.SkipFrom, w.SkipTo = min(w.NextOffset, committed), to
	w.NextOffset, w.Generation = to, w.Generation+1
	m.state.marks[key] = w
}
