package pgstore

import (
	"context"
	"fmt"
)

const undefinedTable = "42P01"

// SchemaVersion returns the version of the database's schema, 0 where there is none.
func (r *Reader) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	err := r.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version)
	if sqlState(err) == undefinedTable { // never migrated
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the schema version: %w", err)
	}
	return version, nil
}

// CheckSchema returns a *SchemaError when the database's schema is older than
// the one wanted, or newer and that is not allowed. A schema that requires a newer program is never allowed.
func (r *Reader) CheckSchema(ctx context.Context, want int64, allowNewer bool) error {
	have, err := r.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > want {
		oldest, err := r.oldestProgram(ctx)
		if err != nil {
			return err
		}
		if want < oldest {
			return &SchemaError{Have: have, Want: want, Oldest: oldest}
		}
	}
	if have < want || have > want && !allowNewer {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}

// oldestProgram returns the lowest schema version that a program must know to work on the database, 0 where none is stored.
func (r *Reader) oldestProgram(ctx context.Context) (version int64, err error) {
	err = r.pool.QueryRow(ctx, `SELECT coalesce(max(oldest_program), 0) FROM schema_requirement`).Scan(&version)
	if sqlState(err) == undefinedTable {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the schema's requirement: %w", err)
	}
	return version, nil
}

// SchemaError says that program and database do not fit each other.
type SchemaError struct {
	Have, Want int64
	// Oldest is the lowest schema version that the database requires a program to know, where this program does not.
	Oldest int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return "the database has no orderprojector schema yet"
	case e.Oldest > 0:
		return fmt.Sprintf("the database does not allow programs as old as this one: it needs one that knows schema version %d, this one knows %d", e.Oldest, e.Want)
	case e.Have < e.Want:
		return fmt.Sprintf("the database is older than this program: schema version %d, need %d", e.Have, e.Want)
	}
	return fmt.Sprintf("the database is newer than this program: schema version %d, known up to %d", e.Have, e.Want)
}

// Hint says how to make them fit.
func (e *SchemaError) Hint() string {
	if e.Oldest > 0 {
		return "stop this program, and start the new one; --allow-newer-schema does not help here"
	}
	if e.Have < e.Want {
		return "run: orderprojector migrate up"
	}
	return "upgrade this program, or pass --allow-newer-schema during a rolling upgrade"
}
