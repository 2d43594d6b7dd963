package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// SchemaVersion returns the version of the database's schema, 0 where there is none.
func (r *Reader) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	err := r.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42P01" { // undefined_table: never migrated
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the schema version: %w", err)
	}
	return version, nil
}

// CheckSchema returns a *SchemaError when the database's schema is older than
// the one wanted, or newer and that is not allowed.
func (r *Reader) CheckSchema(ctx context.Context, want int64, allowNewer bool) error {
	have, err := r.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have < want || have > want && !allowNewer {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}

// SchemaError says that program and database do not fit each other.
type SchemaError struct {
	Have, Want int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return "the database has no orderprojector schema yet"
	case e.Have < e.Want:
		return fmt.Sprintf("the database is older than this program: schema version %d, need %d", e.Have, e.Want)
	}
	return fmt.Sprintf("the database is newer than this program: schema version %d, known up to %d", e.Have, e.Want)
}

// Hint says how to make them fit.
func (e *SchemaError) Hint() string {
	if e.Have < e.Want {
		return "run: orderprojector migrate up"
	}
	return "upgrade this program, or pass --allow-newer-schema during a rolling upgrade"
}
