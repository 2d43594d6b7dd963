//go:build unix

package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// amendments stores messages of orders, straight into the table: versions of each, one version of all after another.
func (s *shop) amendments(prefix string, orders, versions int) {
	s.t.Helper()
	s.exec(`INSERT INTO outbox (id, aggregateid, type, payload)
		SELECT e.id, e.order_id, 'OrderAmended.v1', json_build_object('event_id', e.id, 'order_id', e.order_id, 'type', 'OrderAmended.v1', 'version', v,
			'occurred_at', '2026-01-01T10:00:00Z', 'data', json_build_object('total', json_build_object('amount', '5.00', 'currency', 'EUR')))
		FROM generate_series(1, $3::int) v, generate_series(1, $2::int) o, LATERAL (SELECT $1 || o AS order_id, format('%s%s-e%s', $1, o, v) AS id) e
		ORDER BY v, o`, prefix, orders, versions)
	for o := 1; o <= orders; o++ {
		for v := 1; v <= versions; v++ {
			id := fmt.Sprint(prefix, o)
			s.note(id, int64(v), fmt.Sprintf("%s-e%d", id, v))
		}
	}
}

// A backlog of many orders, and of one order with very many messages, is worked off in order, in bounded memory and with
// statements of bounded size.
func TestRelayCatchesUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2}).newShop()
	s.amendments("o-", 12_000, 2)
	s.amendments("hot-", 1, 500)
	p := s.spawnRelay()
	s.awaitPublished()
	s.judgeOnce(p)
	if peak := p.PeakMemory(); peak > 256<<20 {
		t.Errorf("%d MiB were used", peak>>20)
	}
}

// The record is in the topic, its message is not deleted yet, and the relay dies: the next one publishes it again, as the same event.
func TestRelayDiesBetweenAcknowledgementAndDeletion(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	const messages = 20
	s.amendments("o-", messages/2, 2)
	hold := s.begin()
	if _, err := hold.Exec(t.Context(), `LOCK TABLE outbox IN SHARE MODE`); err != nil { // reading is allowed
		t.Fatal(err)
	}
	p := s.spawnRelay()
	testenv.Await(t, patience, func() (bool, string) { n := s.published(); return n >= messages, fmt.Sprint(n, " published") })
	p.Kill()
	must(t, hold.Rollback(t.Context()))
	if n := ask[int64](s.stage, `SELECT count(*) FROM outbox`); n != messages {
		t.Fatalf("%d messages are left: the relay was faster", n)
	}
	s.spawnRelay()
	s.awaitPublished()
	if repeats := s.judgeTopic(); repeats < messages {
		t.Errorf("%d repeats of %d messages", repeats, messages)
	}
}

// Somebody holds the row of a published message: it stays for now, and nobody else waits for it.
func TestRelayBesideAHeldMessage(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.append("o-held", 1, createdFor("c"))
	hold := s.begin()
	_, err := hold.Exec(t.Context(), `SELECT FROM outbox FOR UPDATE`)
	must(t, err)
	p := s.startRelay()
	s.await("o-held", 1)
	for i := range 100 {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	s.awaitSQL(`SELECT count(*) = 1 FROM outbox`)
	s.append("o-held", 2, order.Amended{Total: *euros(1)})
	must(t, hold.Rollback(t.Context()))
	s.awaitPublished()
	s.judgeOnce(p)
	problems, err := testutil.GatherAndLint(p.Registry())
	must(t, err)
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

// The relay's connections fall silent, as behind a firewall that forgot them: it gives them up, takes its own place back, and goes on.
func TestRelayWhoseConnectionsFellSilent(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	proxy := testenv.StartProxy(t, serverAddress(t, s.dsn))
	s.programDSN = proxy.DSN(t, s.dsn)
	s.startRelay()
	s.append("o-1", 1, createdFor("c"))
	s.awaitPublished()
	proxy.Silence()
	silent := time.Now()
	s.append("o-1", 2, order.Amended{Total: *euros(1)})
	s.awaitPublished()
	if took := time.Since(silent); took > recovery {
		t.Errorf("published %v after the connections fell silent", took)
	}
	s.judgeTopic()
}
