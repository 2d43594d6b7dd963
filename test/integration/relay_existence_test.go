//go:build unix

package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func createdFor(customer string) order.Event {
	return order.Created{CustomerID: customer, Total: order.Money{Minor: 1999, Currency: "EUR"}}
}

// begin opens a transaction that the test ends, or its end does.
func (s *shop) begin() pgx.Tx {
	s.t.Helper()
	tx, err := s.pool.Begin(s.t.Context())
	must(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback(s.t.Context()) })
	return tx
}

// await waits until an order has so many records in the topic.
func (s *shop) await(orderID string, records int) (took time.Duration) {
	s.t.Helper()
	began := time.Now()
	testenv.Await(s.t, patience, func() (bool, string) {
		n := 0
		for _, r := range s.read() {
			if string(r.Key) == orderID {
				n++
			}
		}
		return n >= records, fmt.Sprintf("%d records of order %s", n, orderID)
	})
	return time.Since(began)
}

// Numbers are taken before the commit. What commits late, below what the relay has seen and published long since, is
// published; what is rolled back leaves a hole that holds nobody up; and the order whose lock is held stays in order.
func TestRelayPublishesWhatCommitsLate(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	p := s.startRelay()
	late, never := s.begin(), s.begin()
	must(t, s.appendIn(late, "o-late", 1, createdFor("c")))
	must(t, s.appendIn(never, "o-never", 1, createdFor("c")))
	for i := range 50 {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	s.await("o-49", 1)
	must(t, never.Rollback(t.Context()))
	delete(s.done, "o-never")
	s.append("o-after", 1, createdFor("c"))
	s.await("o-after", 1)
	// The relay has seen everything below several times by now, without the late one.
	awaitMetric(t, p, func(n float64) bool { return n >= 51 }, "orderprojector_outbox_published_total")
	must(t, late.Commit(t.Context()))
	took := s.await("o-late", 1)
	t.Logf("published %v after its commit", took)
	s.append("o-late", 2, order.Amended{Total: *euros(1)})
	s.awaitPublished()
	s.judgeOnce(p)
}

// A notification is not needed: without it the relay finds messages by looking, late ones too.
func TestRelayFindsMessagesWithoutNotification(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.exec(`ALTER TABLE outbox DISABLE TRIGGER outbox_notify`)
	s.startRelay(func(c *config.Config) { c.Outbox.PollInterval = 300 * time.Millisecond })
	late := s.begin()
	must(t, s.appendIn(late, "o-late", 1, createdFor("c")))
	s.append("o-1", 1, createdFor("c"))
	s.await("o-1", 1)
	must(t, late.Commit(t.Context()))
	s.awaitPublished()
	s.judgeTopic()
}

// A session that forgot its transaction, with a transaction ID, holds nothing up; and neither does what cannot be cleaned up
// because of it: messages are published as soon as before, by index look-ups.
func TestRelayBesideAnIdleTransaction(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	idle := s.begin()
	_, err := idle.Exec(t.Context(), `SELECT pg_current_xact_id(), (SELECT count(*) FROM outbox)`)
	must(t, err)
	// A hundred thousand published messages that PostgreSQL has to keep for the idle transaction.
	s.exec(`WITH gone AS (
			INSERT INTO outbox (id, aggregateid, type, payload)
			SELECT 'e-' || n, 'gone-' || n, 'OrderCreated.v1', json_build_object('version', 1) FROM generate_series(1, 100000) n RETURNING seq
		) SELECT count(*) FROM gone`)
	s.exec(`DELETE FROM outbox`)

	p := s.startRelay()
	var slowest time.Duration
	for i := range 60 {
		began := time.Now()
		event := createdFor("c")
		if i >= 20 {
			event = order.Amended{Total: *euros(int64(i))}
		}
		s.append(fmt.Sprintf("o-%d", i%20), int64(1+i/20), event)
		want := float64(i + 1)
		testenv.Await(t, patience, func() (bool, string) {
			got := metric(t, p.Registry(), "orderprojector_outbox_published_total")
			return got >= want, fmt.Sprint(got, " published")
		})
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of 60 messages took %v", slowest)
	if slowest > 5*time.Second {
		t.Errorf("a message took %v", slowest)
	}
	s.awaitPublished()
	s.judgeTopic()
	must(t, p.stop())

}

// A dump that was loaded into a fresh cluster has rows of high numbers, a sequence and transaction IDs that begin again.
// Nothing has to be reset.
func TestRelayAfterADumpWasRestored(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.append("o-1", 1, createdFor("c"))
	s.append("o-2", 1, createdFor("c"))
	s.exec(`WITH old AS (DELETE FROM outbox RETURNING *)
		INSERT INTO outbox (seq, id, aggregateid, type, payload, created_at) OVERRIDING SYSTEM VALUE
		SELECT seq + 1000000000, id, aggregateid, type, payload, created_at FROM old`)
	s.exec(`ALTER TABLE outbox ALTER COLUMN seq RESTART WITH 1`)
	s.append("o-1", 2, order.Amended{Total: *euros(1)})
	s.append("o-3", 1, createdFor("c"))
	p := s.startRelay()
	s.awaitPublished()
	s.append("o-2", 2, order.Amended{Total: *euros(1)}) // below what was seen
	s.awaitPublished()
	awaitMetric(t, p, func(n float64) bool { return n >= 5 }, "orderprojector_outbox_published_total")
	s.judgeOnce(p)
}

// The database is restored from a copy under a running relay: it lost the last commits, and gives their numbers and transaction IDs to others.
func TestRelayWhileTheDatabaseIsRestored(t *testing.T) {
	t.Parallel()
	first := startPostgres(t)
	s := newStage(t, stageConfig{DSN: first.DSN(), Forgiving: true}).newShop()
	proxy := testenv.StartProxy(t, serverAddress(t, first.DSN()))
	s.programDSN = proxy.DSN(t, first.DSN())
	p := s.startRelay()
	s.append("o-1", 1, createdFor("c"))
	s.awaitPublished()
	dir := testenv.ServerDir(t)
	must(t, first.Backup(t.Context(), dir))
	for i := range 20 {
		s.append(fmt.Sprintf("lost-%d", i), 1, createdFor("c"))
	}
	s.awaitPublished()
	first.Kill()
	awaitMetric(t, p, func(n float64) bool { return n > 0 }, "orderprojector_outbox_failures_total", `class="database"`)

	second := testenv.StartPostgres(t, embedded.PostgresConfig{Dir: dir, Settings: map[string]string{"fsync": "off"}})
	proxy.Retarget(serverAddress(t, second.DSN()))
	s.dsn = second.DSN()
	pool, err := pgx.Connect(t.Context(), second.DSN())
	must(t, err)
	defer func() { _ = pool.Close(t.Context()) }()
	for i := range 20 {
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.appendIn(tx, fmt.Sprintf("new-%d", i), 1, createdFor("c")) }))
	}
	for i := range 20 {
		s.await(fmt.Sprintf("new-%d", i), 1)
	}
	s.judgeTopic()
	awaitStatus(t, p, "/healthz/consumption", 200)
}
