package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotFound says that nothing is known of what was asked for.
var ErrNotFound = errors.New("not found")

// Reader answers questions about the projection. It never writes, and is safe
// for concurrent use. Its methods pass errors of the database on, wrapped.
type Reader struct {
	pool      *pgxpool.Pool
	snapshots pgx.TxOptions
}

// NewReader reads through a pool of its own choice, so that slow questions
// do not take connections from the writers.
func NewReader(pool *pgxpool.Pool) *Reader {
	return &Reader{pool, transactionOptions(pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})}
}

// snapshot runs several queries that see the same moment.
func (r *Reader) snapshot(ctx context.Context, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, r.pool, r.snapshots, read)
}

// query collects the rows of one query by column name.
func query[T any](ctx context.Context, tx pgx.Tx, what, sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return all, nil
}
