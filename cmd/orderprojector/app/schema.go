package app

import (
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/migrations"
)

// SchemaVersion is the version of the database schema that this program was
// built for: the newest of its migrations.
func SchemaVersion() (int64, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, file := range files {
		version, err := goose.NumericComponent(file)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", file, err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// OpenMigrator makes goose's provider over the embedded migrations. Its work
// is serialized by a lock in the database, held by the session, so that a killed one leaves none.
// Close closes the connection too.
func OpenMigrator(db config.Database, logger *slog.Logger) (*goose.Provider, error) {
	pool, err := parseURL(db.URL)
	if err != nil {
		return nil, err
	}
	cfg := pool.ConnConfig
	// To build an index takes as long as it takes, but it does not wait for
	// a lock so long that everybody else queues behind it.
	db.StatementTimeout, db.IdleInTransactionTimeout = 0, 0
	configureConn(cfg, db, migratePool)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("making the migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDB(*cfg), migrations.FS,
		goose.WithSessionLocker(locker), goose.WithSlog(logger), goose.WithVerbose(false))
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	return provider, nil
}
