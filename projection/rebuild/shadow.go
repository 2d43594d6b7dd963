package rebuild

import (
	"context"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// revisions is how far the revisions of two sets' rows are apart. A row that somebody
// remembers of one set then never has version and revision of another set's, whatever
// group that somebody works for, so that the guard of a write tells them apart.
const revisions = 1 << 32

// shadowStore is a store over the shadow's tables.
type shadowStore struct {
	*pgstore.Store
	revision int64 // of rows that are inserted
}

var _ projection.OperatorStore = (*shadowStore)(nil)

// InTx implements projection.Store.
func (s *shadowStore) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, tx projection.Tx) error {
		return work(ctx, &shadowTx{Tx: tx, revision: s.revision})
	})
}

type shadowTx struct {
	projection.Tx
	revision int64
}

// Write implements projection.Tx. Rows of version 0, which LockRows inserts, get their revision from the column's default.
func (t *shadowTx) Write(ctx context.Context, writes []*projection.RowWrite) ([]bool, error) {
	for _, w := range writes {
		if w.Insert && w.Row.Revision < t.revision {
			w.Row.Revision += t.revision
		}
	}
	return t.Tx.Write(ctx, writes)
}

// TrySweepLock implements projection.Tx: nobody else sweeps the shadow, and the members' lock is not taken from them.
func (t *shadowTx) TrySweepLock(context.Context) (bool, error) { return true, nil }
