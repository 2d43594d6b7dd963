//go:build unix

package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/migrations"
)

// databaseURL names the server to use instead of starting one.
const databaseURL = "DATABASE_URL"

// SharedPostgres returns the connection string of an administrative database
// on the server that the tests of this binary share. What they put there
// belongs in databases of their own: see Database.
func SharedPostgres(t testing.TB) string {
	t.Helper()
	needs(t, "PostgreSQL")
	return shared.postgres.get(t, func(ctx context.Context) (string, func() error, error) {
		if dsn := os.Getenv(databaseURL); dsn != "" {
			return dsn, nil, nil
		}
		p, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Settings: map[string]string{
			"fsync":              "off", // tests that pull the plug have a server of their own
			"synchronous_commit": "on",
			"max_connections":    "300",
		}})
		if err != nil {
			return "", nil, fmt.Errorf("no PostgreSQL for the tests (set %s to use one that runs): %w", databaseURL, err)
		}
		return p.DSN(), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			return p.Stop(ctx)
		}, nil
	})
}

// Database returns the connection string of a new database with the current
// schema on the shared server. It is dropped at the end of the test.
func Database(t testing.TB) string {
	t.Helper()
	admin := SharedPostgres(t)
	// Copying a migrated database is several times faster than migrating.
	template := shared.template.get(t, func(ctx context.Context) (string, func() error, error) {
		name := uniqueName("template")
		dsn, err := createDatabase(ctx, admin, name, "")
		if err != nil {
			return "", nil, err
		}
		return name, func() error { return dropDatabase(admin, name) }, migrate(ctx, dsn)
	})
	return newDatabase(t, admin, template)
}

// EmptyDatabase is Database without any schema.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return newDatabase(t, SharedPostgres(t), "")
}

// StartPostgres starts a server for one test that stops or breaks it. Its
// database has no schema: see Migrate. Without a Dir the server gets a
// temporary one, which outlives Stop and Kill and is removed at the end of
// the test.
func StartPostgres(t testing.TB, config embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	needs(t, "PostgreSQL")
	if config.Dir == "" {
		config.Dir = ServerDir(t)
	}
	p, err := embedded.StartPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		showOnFailure(t, "PostgreSQL", p.LogFile())
	})
	return p
}

// ServerDir returns a new directory that also a server running as another
// user can reach, which t.TempDir does not promise, for the copy that
// (*embedded.Postgres).Backup makes. It is removed at the end of the test.
func ServerDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderprojector-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A killed server's last process may still write for a moment.
		Await(t, 10*time.Second, func() (bool, string) {
			err := os.RemoveAll(dir)
			return err == nil, fmt.Sprint("removing the test's directory: ", err)
		})
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Migrate brings a database to the current schema.
func Migrate(t testing.TB, dsn string) {
	t.Helper()
	if err := migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
}

func migrate(ctx context.Context, dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return fmt.Errorf("migrating a test database: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS)
	if err != nil {
		return errors.Join(fmt.Errorf("migrating a test database: %w", err), db.Close())
	}
	_, err = provider.Up(ctx)
	if err := errors.Join(err, provider.Close()); err != nil {
		return fmt.Errorf("migrating a test database: %w", err)
	}
	return nil
}

func newDatabase(t testing.TB, admin, template string) string {
	t.Helper()
	name := Name(t)
	dsn, err := createDatabase(t.Context(), admin, name, template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(admin, name); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

func createDatabase(ctx context.Context, admin, name, template string) (dsn string, err error) {
	stmt := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		stmt += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	if err := administer(ctx, admin, stmt); err != nil {
		return "", fmt.Errorf("creating a test database: %w", err)
	}
	return withDatabase(admin, name)
}

func dropDatabase(admin, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := administer(ctx, admin, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	if err != nil {
		return fmt.Errorf("dropping a test database: %w", err)
	}
	return nil
}

func administer(ctx context.Context, dsn, stmt string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, stmt)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase changes the database in a connection string of the URL form.
func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%s must have the form postgres://user@host:port/database", databaseURL)
	}
	u.Path = "/" + name
	return u.String(), nil
}
