package verify_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// hooked calls before each transaction.
type hooked struct {
	*pgxpool.Pool
	before func()
}

func (h *hooked) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	h.before()
	return h.Pool.BeginTx(ctx, options)
}
