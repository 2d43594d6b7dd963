//go:build unix

package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
)

func start(t *testing.T, config embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	p, err := embedded.StartPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func exec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var result string
	if err := conn.QueryRow(t.Context(), sql).Scan(&result); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return result
}

// dataDir is a directory that also an unprivileged server can reach, which
// t.TempDir is not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderprojector-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestThrowawayServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	p := start(t, embedded.PostgresConfig{Settings: map[string]string{"fsync": "off", "application_name": "it's"}})
	if db := query(t, p.DSN(), "SELECT current_database()"); db != embedded.DatabaseName {
		t.Errorf("database %q", db)
	}
	if v := query(t, p.DSN(), "SELECT current_setting('fsync') || current_setting('application_name')"); v != "offit's" {
		t.Errorf("settings %q", v)
	}
	other, err := p.CreateDatabase(t.Context(), `odd"name`)
	if err != nil {
		t.Fatal(err)
	}
	if db := query(t, other, "SELECT current_database()"); db != `odd"name` {
		t.Errorf("database %q", db)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir()); !os.IsNotExist(err) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
}

func TestCommittedDataOutlivesStopsAndCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	p := start(t, embedded.PostgresConfig{Dir: dataDir(t)})
	port := p.Port()
	exec(t, p.DSN(), "CREATE TABLE kept (n int)")
	exec(t, p.DSN(), "INSERT INTO kept VALUES (1)")
	p.Kill()
	if _, err := pgx.Connect(t.Context(), p.DSN()); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, p.DSN(), "INSERT INTO kept VALUES (2)")
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	exec(t, p.DSN(), "INSERT INTO kept VALUES (3)")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := query(t, p.DSN(), "SELECT string_agg(n::text, ' ' ORDER BY n) FROM kept"); n != "1 2 3" {
		t.Errorf("kept %q", n)
	}
	if p.Port() != port {
		t.Errorf("port %d became %d", port, p.Port())
	}
}

func TestBackupTakesOverWithoutTheLastCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	primary := start(t, embedded.PostgresConfig{Dir: dataDir(t)})
	exec(t, primary.DSN(), "CREATE TABLE kept AS SELECT generate_series(1, 10000) AS n")

	// Commits go on while the copy is made.
	busy, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(t.Context(), primary.DSN())
		if err != nil {
			done <- err
			return
		}
		defer conn.Close(context.Background())
		for busy.Err() == nil {
			if _, err := conn.Exec(t.Context(), "UPDATE kept SET n = -n"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	online := filepath.Join(dataDir(t), "online")
	if err := primary.Backup(t.Context(), online); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	exec(t, primary.DSN(), "CREATE TABLE lost ()")
	port := primary.Port()
	primary.Kill()
	offline := filepath.Join(dataDir(t), "offline")
	if err := primary.Backup(t.Context(), offline); err != nil {
		t.Fatal(err)
	}

	const both = "SELECT count(*) || ' ' || (to_regclass('lost') IS NOT NULL)::text FROM kept"
	for _, step := range []struct{ dir, want string }{{online, "10000 false"}, {offline, "10000 true"}} {
		replica := start(t, embedded.PostgresConfig{Dir: step.dir, Port: port})
		if got := query(t, primary.DSN(), both); got != step.want {
			t.Errorf("%s: rows and lost table %q, want %q", step.dir, got, step.want)
		}
		if err := replica.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFailedStartShowsTheServersWords(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Settings: map[string]string{"shared_buffers": "a lot"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Fatalf("got %v", err)
	}
	if _, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Binaries: "/nowhere"}); err == nil {
		t.Fatal("no error without binaries")
	}
}

func TestFetchedServer(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches and starts PostgreSQL")
	}
	p := start(t, embedded.PostgresConfig{Binaries: "download", Settings: map[string]string{"fsync": "off"}})
	if v := query(t, p.DSN(), "SHOW server_version"); !strings.HasPrefix(v, "18.") || p.Version() != 18 {
		t.Errorf("version %q, %d", v, p.Version())
	}
}
