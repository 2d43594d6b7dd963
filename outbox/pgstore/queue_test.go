//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/outbox/pgstore"
	"github.com/orderprojector/orderprojector/outbox/relay"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func open(t *testing.T, dsn string) (*pgstore.Queue, error) {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q, err := pgstore.OpenQueue(cfg, 30*time.Second)(t.Context())
	if err != nil {
		return nil, err
	}
	t.Cleanup(q.Close)
	return q.(*pgstore.Queue), nil
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// fill stores messages of so many orders, one version after another through all orders.
func fill(t *testing.T, conn *pgx.Conn, orders, versions int) {
	t.Helper()
	exec(t, conn, `INSERT INTO outbox (id, aggregateid, type, payload)
		SELECT format('e-%s-%s', o, v), 'o-' || o, 'OrderPacked.v1', json_build_object('version', v)
		FROM generate_series(1, $2::int) v, generate_series(1, $1::int) o ORDER BY v, o`, orders, versions)
}

// The relay's statements are index look-ups, whether the table is empty, full, or full of what is deleted, and whatever the
// statistics say.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	q, err := open(t, dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	check := func(when string) {
		t.Helper()
		for name, plan := range q.Plans(t) {
			for _, slow := range []string{"Seq Scan", "Sort", "Hash", "Materialize", "Join Filter"} {
				if strings.Contains(plan, slow) {
					t.Errorf("%s, %s: %s\n%s", name, when, slow, plan)
				}
			}
		}
	}
	check("empty")
	fill(t, conn, 5000, 4)
	check("full, without statistics")
	exec(t, conn, `ANALYZE outbox, outbox_failures`)
	check("full")
	exec(t, conn, `INSERT INTO outbox_failures (seq, aggregateid, reason, detail) SELECT seq, aggregateid, 'invalid', '' FROM outbox WHERE seq % 7 = 0`)
	check("many blocked")
	exec(t, conn, `ANALYZE outbox_failures`)
	check("many blocked, known")
	exec(t, conn, `DELETE FROM outbox`)
	check("all deleted")
	exec(t, conn, `VACUUM ANALYZE outbox`)
	check("empty again")
}

// Orders are named by number and loaded by version, as many as are asked for, and none that is blocked.
func TestQueueLoadsByVersion(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	q, err := open(t, dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	fill(t, conn, 3, 3)
	// Numbers against the versions, as only a careless service writes them.
	exec(t, conn, `UPDATE outbox SET payload = json_build_object('version', 10 - (payload ->> 'version')::int) WHERE aggregateid = 'o-2'`)
	seen, err := q.Discover(t.Context(), 0, math.MaxInt64, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]relay.Sighting{{Seq: 1, OrderID: "o-1"}, {Seq: 2, OrderID: "o-2"}, {Seq: 3, OrderID: "o-3"}, {Seq: 4, OrderID: "o-1"}}, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	load := func(most int, orders ...string) (got []string) {
		t.Helper()
		err := q.Load(t.Context(), orders, 2, func(m *relay.Message) bool {
			got = append(got, fmt.Sprint(m.OrderID, " ", m.Version))
			return len(got) < most
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff([]string{"o-2 7", "o-2 8", "o-1 1", "o-1 2"}, load(99, "o-2", "o-none", "o-1")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"o-2 7"}, load(1, "o-2", "o-1")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	blocked := []relay.Blocked{{Message: &relay.Message{Seq: 3}, Reason: relay.Invalid, Detail: "bad\x00"}, {Message: &relay.Message{Seq: 77}, Reason: relay.Invalid}}
	if err := q.Block(t.Context(), blocked); err != nil {
		t.Fatal(err)
	}
	if got := load(99, "o-3"); got != nil {
		t.Errorf("a blocked order was loaded: %v", got)
	}
	if standing, err := q.Standing(t.Context()); err != nil || standing != (relay.Standing{Orders: 1, Order: "o-3", Detail: "invalid: bad\ufffd"}) {
		t.Errorf("%+v, %v", standing, err)
	}
	// Somebody deletes the message: nothing is blocked any more.
	exec(t, conn, `DELETE FROM outbox WHERE seq = 3`)
	if standing, err := q.Standing(t.Context()); err != nil || standing.Orders != 0 {
		t.Errorf("%+v, %v", standing, err)
	}
	if diff := cmp.Diff([]string{"o-3 2", "o-3 3"}, load(99, "o-3")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Somebody holds one: the others are removed, and that one later.
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM outbox WHERE seq = 7 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int64{{7}, {7}, nil} {
		if want == nil {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		left, err := q.Remove(t.Context(), []int64{9, 1, 4, 7})
		if diff := cmp.Diff(want, left); diff != "" || err != nil {
			t.Errorf("left (-want +got):\n%s%v", diff, err)
		}
	}
	if left, err := q.Remove(t.Context(), []int64{9}); left != nil || err != nil {
		t.Errorf("a message that is gone: %v, %v", left, err)
	}
	if seen, err = q.Discover(t.Context(), 0, 8, 99); err != nil || len(seen) != 4 {
		t.Errorf("%v, %v", seen, err)
	}
}

// One session has the queue. It hears of new messages, is told when it is too silent, and then another gets the queue.
func TestOneSessionHasTheQueue(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	q, err := open(t, dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dsn); !errors.Is(err, relay.ErrStandby) || !strings.Contains(err.Error(), "database session") {
		t.Fatalf("a second session: %v", err)
	}
	conn := connect(t, dsn)
	if notified, err := q.Await(t.Context(), time.Millisecond); notified || err != nil {
		t.Errorf("%v, %v", notified, err)
	}
	fill(t, conn, 1, 1)
	if notified, err := q.Await(t.Context(), time.Minute); !notified || err != nil {
		t.Errorf("%v, %v", notified, err)
	}
	if _, err := q.Discover(t.Context(), 0, 1, 1); err != nil { // the session outlives waits that ended early
		t.Error(err)
	}
	exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if _, err = q.Standing(t.Context()); err == nil {
		t.Error("a terminated session still works")
	}
	var failure *relay.Failure
	if !errors.As(err, &failure) || failure.Class != relay.Database {
		t.Errorf("the failure is %v", err)
	}
	testenv.Await(t, 30*time.Second, func() (bool, string) {
		_, err := open(t, dsn)
		return err == nil, fmt.Sprint(err)
	})
}
