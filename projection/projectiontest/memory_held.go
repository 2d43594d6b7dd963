package projectiontest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// HeldRecords returns every held record.
func (m *Memory) HeldRecords() []projection.HeldRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.state.held)
}

func (t *memoryTx) HeldOrders(_ context.Context, key projection.WatermarkKey, orderIDs []string) (map[string]bool, error) {
	held := map[string]bool{}
	for i := range t.held {
		h := &t.held[i]
		if h.Key(key.Group) == key && slices.Contains(orderIDs, h.OrderID) {
			held[h.OrderID] = true
		}
	}
	return held, nil
}

func (t *memoryTx) Hold(_ context.Context, _ string, records []*projection.HeldRecord) (int64, error) {
	for _, h := range records {
		same := func(o projection.HeldRecord) bool {
			return o.Record.TopicPartition == h.Record.TopicPartition && o.Record.Offset == h.Record.Offset
		}
		if slices.ContainsFunc(t.held, same) {
			continue
		}
		t.lastID++
		stored := *h
		stored.ID, stored.HeldAt = t.lastID, time.Now()
		t.held = append(t.held, stored)
	}
	return int64(len(t.held)), nil
}

func (t *memoryTx) TakeHeld(context.Context, string) (*projection.HeldRecord, error) {
	for i := range t.held {
		h := t.held[i]
		earlier := func(o projection.HeldRecord) bool {
			return h.OrderID != "" && o.OrderID == h.OrderID && o.Record.TopicPartition == h.Record.TopicPartition && o.Record.Offset < h.Record.Offset
		}
		waits := t.m.Timed && t.due[h.ID].After(time.Now())
		if !waits && !slices.ContainsFunc(t.held, earlier) {
			return &h, nil
		}
	}
	return nil, nil
}

func (t *memoryTx) LockHeld(_ context.Context, _ string, id int64) (*projection.HeldRecord, error) {
	for i := range t.held {
		if h := t.held[i]; h.ID == id {
			return &h, nil
		}
	}
	return nil, nil
}

// Postpone puts the record behind the others.
func (t *memoryTx) Postpone(_ context.Context, h *projection.HeldRecord, pause time.Duration) error {
	t.forget(h.ID)
	t.due[h.ID] = time.Now().Add(pause)
	t.held = append(t.held, *h)
	return nil
}

func (t *memoryTx) Release(_ context.Context, h *projection.HeldRecord) error {
	t.forget(h.ID)
	return nil
}

func (t *memoryTx) forget(id int64) {
	t.held = slices.DeleteFunc(t.held, func(o projection.HeldRecord) bool { return o.ID == id })
}

func (t *memoryTx) Trial(ctx context.Context, work func(context.Context) error) error {
	before := t.clone()
	defer func() { t.state = before }()
	return work(ctx)
}

func (t *memoryTx) TouchOther(_ context.Context, _, orderID string, nth int) (bool, error) {
	for _, id := range slices.Sorted(maps.Keys(t.rows)) {
		if id == orderID || slices.ContainsFunc(t.held, func(h projection.HeldRecord) bool { return h.OrderID == id }) {
			continue
		}
		if nth--; nth >= 0 {
			continue
		}
		if t.m.Refuse != nil {
			return true, t.m.Refuse(t.rows[id])
		}
		return true, nil
	}
	return false, nil
}

func (t *memoryTx) LockedElsewhere(context.Context, []string) ([]string, error) { return nil, nil }

func (t *memoryTx) StoredVersion(_ context.Context, orderID string) (int64, error) {
	if row := t.rows[orderID]; row != nil {
		return row.Version, nil
	}
	return 0, nil
}

func (t *memoryTx) HeldOf(_ context.Context, _, orderID string) (held []*projection.HeldRecord, _ error) {
	for i := range t.held {
		if h := t.held[i]; h.OrderID == orderID {
			held = append(held, &h)
		}
	}
	return held, nil
}

func (t *memoryTx) HeldAround(_ context.Context, _ string, h *projection.HeldRecord) (before, behind int64, _ error) {
	for i := range t.held {
		o := &t.held[i].Record
		switch {
		case h.OrderID == "" || t.held[i].OrderID != h.OrderID || o.TopicPartition != h.Record.TopicPartition:
		case o.Offset < h.Record.Offset:
			before++
		case o.Offset > h.Record.Offset:
			behind++
		}
	}
	return before, behind, nil
}

func (t *memoryTx) MakeHeldDue(_ context.Context, _ string, s projection.HeldSelection, _ string) (retries []projection.HeldRetry, _ error) {
	for i := range t.held {
		h := &t.held[i]
		if (len(s.IDs) == 0 || slices.Contains(s.IDs, h.ID)) && (s.Order == "" || h.OrderID == s.Order) {
			delete(t.due, h.ID)
			retries = append(retries, projection.HeldRetry{ID: h.ID, OrderID: h.OrderID})
		}
	}
	slices.SortFunc(retries, func(a, b projection.HeldRetry) int { return cmp.Compare(a.ID, b.ID) })
	return retries, nil
}
