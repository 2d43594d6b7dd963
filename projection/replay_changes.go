package projection

import "context"

// RowChange is how an order stood before a replay, and how it stands after it.
type RowChange struct {
	Before *Standing `json:"before"` // nil when there was no row
	After  Standing  `json:"after"`
}

// maxChanges bounds how many changed orders are remembered.
const maxChanges = 100_000

// changeLog is a Store that remembers which rows were written. It is used by one goroutine.
type changeLog struct {
	Store
	rows   map[string]*RowChange
	beyond int64 // changes of orders that are not remembered
	parked int64 // events parked
}

func newChangeLog(store Store) *changeLog {
	return &changeLog{Store: store, rows: map[string]*RowChange{}}
}

// InTx implements Store. What a transaction did counts once it is committed.
func (c *changeLog) InTx(ctx context.Context, work func(context.Context, Tx) error) error {
	var t *changeTx
	err := c.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
		t = &changeTx{Tx: tx, before: map[string]*Row{}}
		return work(ctx, t)
	})
	if err != nil {
		return err
	}
	for _, row := range t.after {
		c.note(t.before[row.OrderID], row)
	}
	c.parked += t.parked
	return nil
}

func (c *changeLog) note(before, after *Row) {
	change := c.rows[after.OrderID]
	if change == nil {
		if len(c.rows) >= maxChanges {
			c.beyond++
			return
		}
		change = &RowChange{}
		if before != nil && (before.Version > 0 || before.Status != StatusOK) {
			s := standing(before)
			change.Before = &s
		}
		c.rows[after.OrderID] = change
	}
	change.After = standing(after)
}

// changeTx remembers the rows that are read, and those that are written.
type changeTx struct {
	Tx
	before map[string]*Row
	after  []*Row
	parked int64
}

func (t *changeTx) seen(rows map[string]*Row) {
	for id, row := range rows {
		if _, ok := t.before[id]; !ok {
			t.before[id] = row
		}
	}
}

// Rows implements Tx.
func (t *changeTx) Rows(ctx context.Context, orderIDs []string) (map[string]*Row, error) {
	rows, err := t.Tx.Rows(ctx, orderIDs)
	t.seen(rows)
	return rows, err
}

// LockRows implements Tx.
func (t *changeTx) LockRows(ctx context.Context, orderIDs []string) (map[string]*Row, error) {
	rows, err := t.Tx.LockRows(ctx, orderIDs)
	t.seen(rows)
	return rows, err
}

// Write implements Tx.
func (t *changeTx) Write(ctx context.Context, writes []*RowWrite) ([]bool, error) {
	held, err := t.Tx.Write(ctx, writes)
	for i := range held {
		if held[i] {
			copied := *writes[i].Row // it may be decided on further
			t.after = append(t.after, &copied)
		}
	}
	return held, err
}

// Park implements Tx.
func (t *changeTx) Park(ctx context.Context, group string, events []*ParkedEvent) error {
	t.parked += int64(len(events))
	return t.Tx.Park(ctx, group, events)
}
