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
		got, _ = loaded(t, q, 1<<20, most, orders...)
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

func loaded(t *testing.T, q *pgstore.Queue, maxBytes int64, most int, orders ...string) (got []string, cut bool) {
	t.Helper()
	cut, err := q.Load(t.Context(), orders, 2, maxBytes, func(m *relay.Message) bool {
		got = append(got, fmt.Sprint(m.OrderID, " ", m.Version))
		return len(got) < most
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, cut
}

// As many messages are loaded as fit, and one that does not fit alone. A statement that takes too long leaves the queue as it was.
func TestQueueLoadsWhatFits(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	q, err := open(t, dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	exec(t, conn, `INSERT INTO outbox (id, aggregateid, type, payload)
		SELECT 'e-' || n, 'o-' || n, 'OrderPacked.v1', json_build_object('version', 1, 'note', (SELECT string_agg(md5(n || ' ' || i), '') FROM generate_series(1, 3000) i))
		FROM generate_series(1, 20) n`)
	orders := make([]string, 20)
	for i := range orders {
		orders[i] = fmt.Sprint("o-", i+1)
	}
	for maxBytes, want := range map[int64]int{1: 1, 150_000: 2, 1 << 30: 20} {
		if got, cut := loaded(t, q, maxBytes, 99, orders...); len(got) != want || cut != (want < 20) {
			t.Errorf("%d bytes: %v are loaded, cut %v", maxBytes, got, cut)
		}
	}
	lock, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	q.Set(t, "statement_timeout", "100ms")
	if _, err := q.Discover(t.Context(), 0, math.MaxInt64, 1); !errors.Is(err, relay.ErrTooSlow) {
		t.Errorf("the error is %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen, err := q.Discover(t.Context(), 0, math.MaxInt64, 1); err != nil || len(seen) != 1 {
		t.Errorf("%v, %v", seen, err)
	}
}

// Blocked messages that are too large are tried again once they fit.
func TestQueueReleasesWhatFits(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	q, err := open(t, dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	fill(t, conn, 4, 1)
	exec(t, conn, `INSERT INTO outbox_failures (seq, aggregateid, reason, detail) VALUES
		(1, 'o-1', 'too_large', '1000 bytes are too many'), (2, 'o-2', 'too_large', '1001 bytes are too many'),
		(3, 'o-3', 'refused', '10 bytes are too many'), (4, 'o-4', 'too_large', 'too large')`)
	for _, want := range []int{1, 0} {
		if released, err := q.Release(t.Context(), 1000); released != want || err != nil {
			t.Errorf("%d are released, %v", released, err)
		}
	}
	tried := map[string]bool{}
	exec(t, conn, `DELETE FROM outbox_failures WHERE seq > 2`)
	if _, err := q.Load(t.Context(), []string{"o-1", "o-2", "o-3"}, 2, 1<<20, func(m *relay.Message) bool { tried[m.OrderID] = m.Tried; return true }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"o-1": true, "o-3": false}, tried); diff != "" {
		t.Errorf("loaded, and tried before (-want +got):\n%s", diff)
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
