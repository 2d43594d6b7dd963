package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/migrations"
)

// schemaFiles are the migrations that make the outbox, in their order.
func schemaFiles() []string { return []string{"00008_outbox.sql"} }

// Database is a connection, a pool or a transaction.
type Database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// EnsureSchema makes the outbox tables where they are not there yet, in the
// schema where unqualified names go. It is for services with a database of their own; in
// a database that orderprojector migrates it makes the same tables, before or after. It
// may run at every start and at the same time in several processes: where the
// tables are there it needs no privilege to create any, and locks nothing.
func EnsureSchema(ctx context.Context, db Database) error {
	there, err := SchemaExists(ctx, db)
	if err != nil || there {
		return err
	}
	for _, name := range schemaFiles() {
		ddl, err := upStatements(name)
		if err != nil {
			return err
		}
		// Several statements at once, which are one transaction.
		if _, err := db.Exec(ctx, ddl, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("outbox: making the tables: %w", err)
		}
	}
	return nil
}

// SchemaExists reports whether the outbox tables are there.
func SchemaExists(ctx context.Context, db Database) (bool, error) {
	var there bool
	err := db.QueryRow(ctx, `SELECT to_regclass('outbox') IS NOT NULL AND to_regclass('outbox_failures') IS NOT NULL
		AND to_regclass('outbox_discarded') IS NOT NULL
		AND EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('outbox') AND tgname = 'outbox_notify')`).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("outbox: looking for the tables: %w", err)
	}
	return there, nil
}

// upStatements returns what a migration does. Its annotations are comments in SQL.
func upStatements(name string) (string, error) {
	text, err := migrations.FS.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("outbox: %w", err)
	}
	_, up, found := strings.Cut(string(text), "-- +goose Up\n")
	up, _, bounded := strings.Cut(up, "-- +goose Down\n")
	if !found || !bounded {
		return "", errors.New("outbox: " + name + " has no statements between its annotations")
	}
	return up, nil
}
