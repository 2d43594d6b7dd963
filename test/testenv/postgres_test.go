//go:build unix

package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func count(t *testing.T, conn *pgx.Conn, from string) int {
	t.Helper()
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDatabasesAreMigratedAndApart(t *testing.T) {
	a, b := connect(t, testenv.Database(t)), connect(t, testenv.Database(t))
	if _, err := a.Exec(t.Context(), "INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset) "+
		"VALUES ('g', 't', gen_random_uuid(), 0, 1)"); err != nil {
		t.Fatal(err)
	}
	if n := count(t, a, "projection_watermarks"); n != 1 {
		t.Errorf("%d rows", n)
	}
	if n := count(t, b, "projection_watermarks"); n != 0 {
		t.Errorf("%d rows in the other database", n)
	}
	empty := connect(t, testenv.EmptyDatabase(t))
	if n := count(t, empty, "pg_tables WHERE schemaname = 'public'"); n != 0 {
		t.Errorf("%d tables in an empty database", n)
	}
}

func TestPrivatePostgresFailsOverBehindAProxy(t *testing.T) {
	primary := testenv.StartPostgres(t, embedded.PostgresConfig{})
	testenv.Migrate(t, primary.DSN())
	proxy := testenv.StartPostgresProxy(t, fmt.Sprintf("127.0.0.1:%d", primary.Port()))
	dsn := proxy.DSN(t, primary.DSN())
	if n := count(t, connect(t, dsn), "orders"); n != 0 {
		t.Fatalf("%d orders", n)
	}
	copied := testenv.ServerDir(t)
	if err := primary.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	old := connect(t, dsn)
	if _, err := old.Exec(t.Context(), "CREATE TABLE lost ()"); err != nil {
		t.Fatal(err)
	}
	primary.Kill()
	replica := testenv.StartPostgres(t, embedded.PostgresConfig{Dir: copied})
	proxy.Retarget(fmt.Sprintf("127.0.0.1:%d", replica.Port()))
	if err := old.Ping(t.Context()); err == nil {
		t.Error("a connection to the killed server still works")
	}
	if n := count(t, connect(t, dsn), "pg_tables WHERE tablename = 'lost'"); n != 0 {
		t.Error("the replica has what was committed after the copy")
	}
}

func TestPostgresProxyFaults(t *testing.T) {
	direct := testenv.Database(t)
	config, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.StartPostgresProxy(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	dsn := proxy.DSN(t, direct)
	admin := connect(t, direct)
	if _, err := admin.Exec(t.Context(), "CREATE TABLE marks (n int)"); err != nil {
		t.Fatal(err)
	}
	// insert commits one row and returns the error of that.
	insert := func(conn *pgx.Conn, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO marks VALUES ($1)", 1)
			return err
		})
	}
	refused := func(sqlstate string) bool {
		_, err := pgx.Connect(t.Context(), dsn)
		var pgErr *pgconn.PgError
		return errors.As(err, &pgErr) && pgErr.Code == sqlstate
	}
	rows := 0
	expect := func(added int) {
		t.Helper()
		rows += added
		if n := count(t, admin, "marks"); n != rows {
			t.Errorf("%d rows, want %d", n, rows)
		}
	}

	conn := connect(t, dsn)
	if err := insert(conn, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	expect(1)

	lost := proxy.LoseAnswer("COMMIT")
	if err := insert(conn, 10*time.Second); err == nil {
		t.Error("a COMMIT without an answer succeeded")
	}
	<-lost
	expect(1) // and yet it is there

	hung := proxy.HangAnswer("INSERT")
	if err := insert(connect(t, dsn), 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	<-hung
	proxy.Sever()
	expect(0)

	proxy.Refuse("57P03", "the database system is starting up")
	if !refused("57P03") {
		t.Error("not refused while starting up")
	}
	proxy.Admit()
	conn = connect(t, dsn)

	for _, d := range []testenv.Direction{testenv.ToServer, testenv.ToClient, testenv.BothWays} {
		proxy.Swallow(d)
		if err := insert(conn, 200*time.Millisecond); err == nil {
			t.Errorf("direction %d: worked through a black hole", d)
		}
		proxy.Heal()
		conn = connect(t, dsn)
	}

	proxy.Cut()
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Error("connected although cut")
	}
	proxy.Heal()
	proxy.Latency(50 * time.Millisecond)
	began := time.Now()
	conn = connect(t, dsn)
	if err := conn.Ping(t.Context()); err != nil || time.Since(began) < 150*time.Millisecond {
		t.Errorf("two delayed round trips took %v, error %v", time.Since(began), err)
	}
	if err := insert(conn, 10*time.Second); err != nil {
		t.Error(err)
	}
	expect(1)
}
