package pgstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Programs from before held records fail at their first statement, whatever they were allowed: every batch of theirs read
// these columns, and every change of a row named these types.
func TestOlderProgramsAreStopped(t *testing.T) {
	t.Parallel()
	_, pool := openStore(t)
	for sql, code := range map[string]string{
		`SELECT next_offset, coalesce(skip_from, 0), coalesce(skip_to, 0) FROM projection_watermarks FOR NO KEY UPDATE`: "42703",
		`SELECT FROM unnest('{}'::order_change[]) AS c`:                                                                 "42704",
		`SELECT FROM unnest('{}'::order_append[]) AS c`:                                                                 "42704",
		`INSERT INTO held_records (applied_then) VALUES (0)`:                                                            "42703",
	} {
		_, err := pool.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != code {
			t.Errorf("%s: %v, want SQLSTATE %s", sql, err, code)
		}
	}
}
