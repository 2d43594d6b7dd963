package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// BeginTx begins a transaction on the reader's pool, for questions that this
// package does not know. The caller ends it.
func (r *Reader) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	return r.pool.BeginTx(ctx, transactionOptions(r.pool, options))
}
