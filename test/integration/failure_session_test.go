//go:build unix

package integration_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// Somebody migrates under load: plans that sessions have prepared are void. That costs a retry, and no event (B32).
func TestFailureSchemaChangesUnderLoad(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	p := s.spawn("--cache-bytes=0") // every batch reads its orders
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, InFlight: 50}, 300)
	awaitOwned(t, p, 4)
	s.awaitMarks(patience, after(s.ends()))

	view := ask[string](s, `SELECT pg_get_viewdef('orders'::regclass)`)
	for _, change := range []string{
		`ALTER TABLE order_rows ADD COLUMN x int`,
		`BEGIN; DROP VIEW orders; ALTER TABLE order_rows ALTER customer_id TYPE varchar(300); CREATE VIEW orders AS ` + view + ` COMMIT`,
		`ALTER TABLE order_rows ADD COLUMN note text DEFAULT 'none'`,
		`BEGIN; DROP VIEW orders; ALTER TABLE order_rows ALTER customer_id TYPE text; CREATE VIEW orders AS ` + view + ` COMMIT`,
	} {
		s.exec(change)
		if took := s.awaitMarks(2*recovery, after(s.ends())); took > recovery {
			t.Errorf("works again %v after %s", took, change)
		}
	}
	p.AwaitOutput(patience, "SQLSTATE 0A000")
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
	if n, _ := metricOf(p, "orderprojector_retries_total", `class="transient"`); n < 1 || n > 16 {
		t.Errorf("%v batches were tried again", n)
	}
	if n, _ := metricOf(p, "orderprojector_retries_total", `class="infrastructure"`); n != 0 {
		t.Errorf("%v batches were taken for hopeless", n)
	}
}

// Two members behind a pooler that gives each transaction another session project what they
// project without it (B32).
func TestFailurePoolerOfTransactions(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 4)

	// A pooler that swallows the session's parameters, and a program that was not told of it:
	// prepared statements go missing. That is a nuisance, and no event's fault.
	s.programDSN = testenv.StartPgBouncer(t, s.dsn, map[string]string{"ignore_startup_parameters": strings.Join([]string{
		"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "plan_cache_mode", "jit",
		"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count",
	}, ", ")}).DSN(t, s.dsn)
	untold := s.spawn("--batch-max-records=50")
	traffic := generate.Config{Seed: seed, Orders: 100, Rates: generate.Faulty()}
	s.generate(traffic)
	testenv.Await(t, patience, func() (bool, string) {
		return regexp.MustCompile(`SQLSTATE (26000|42P05)`).MatchString(untold.Stderr()), "no prepared statement went missing"
	})
	if code := untold.Stop(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// What it did to the sessions outlives it there.
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)

	// One that refuses them, and a program that was told.
	s.programDSN = testenv.StartPgBouncer(t, s.dsn, nil).DSN(t, s.dsn) + "&default_query_exec_mode=cache_describe"
	traffic.Seed, traffic.Orders = traffic.Seed+1, 400
	s.generate(traffic)
	one, two := s.spawn("--batch-max-records=50", "--database-lock-timeout=200ms"), s.spawn("--batch-max-records=50", "--database-lock-timeout=200ms")
	s.awaitDrained()
	awaitOwned(t, one, 2)
	awaitOwned(t, two, 2)
	s.judge()
	if n := s.counts(); n.Total() < 2000 || n[projection.Applied] < 1500 {
		t.Errorf("counts %v", n)
	}
	s.awaitCopied()
	for _, p := range []*process{one, two} {
		if n, _ := metricOf(p, "orderprojector_retries_total"); n != 0 {
			t.Errorf("%v batches were tried again:\n%s", n, p.Stderr())
		}
	}

	// The timeouts hold, although no session has them, and none is left with what belongs to somebody else.
	s.produce(created("held"))
	s.awaitDrained()
	release := s.holdOrders("held")
	s.produce(paid("held", 2))
	testenv.Await(t, patience, func() (bool, string) {
		return strings.Contains(one.Stderr()+two.Stderr(), "SQLSTATE 55P03"), "nobody ran into the lock timeout"
	})
	release()
	s.awaitDrained()
	s.awaitReleased()
	s.judge()
	if n := ask[int](s, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
		t.Errorf("%d advisory locks are held by sessions", n)
	}
	if code, out, stderr := s.command("orders", "get", "held"); code != 0 || !strings.Contains(out, "paid") {
		t.Errorf("orders get: exit code %d\n%s%s", code, out, stderr)
	}
}
