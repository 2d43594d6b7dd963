//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// spectator reads the view of orders all the time, as a live reader does.
type spectator struct {
	t       *testing.T
	stop    context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	longest time.Duration
	reads   int
}

// watchOrders starts a spectator. It fails the test when an order is gone, or was at a higher version
// before, unless backwards is allowed.
func (s *stage) watchOrders(t *testing.T) *spectator {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &spectator{t: t, stop: stop, ended: make(chan struct{})}
	conn, err := pgx.Connect(ctx, s.dsn)
	must(t, err)
	go func() {
		defer close(w.ended)
		defer func() { _ = conn.Close(context.Background()) }()
		seen := map[string]int64{}
		for ctx.Err() == nil {
			began := time.Now()
			rows, err := conn.Query(ctx, `SELECT order_id, version FROM orders WHERE order_id <> 'a-back' ORDER BY order_id LIMIT 200`)
			found := map[string]int64{}
			if err == nil {
				var id string
				var version int64
				_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error { found[id] = version; return nil })
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("reading orders: %v", err)
				return
			}
			w.mu.Lock()
			w.longest, w.reads = max(w.longest, time.Since(began)), w.reads+1
			w.mu.Unlock()
			if len(found) < 200 { // later ones may push the last of them out
				for id, version := range seen {
					if found[id] < version {
						t.Errorf("order %s was at version %d, and is at %d", id, version, found[id])
					}
				}
			}
			for id, version := range found {
				if version < seen[id] {
					t.Errorf("order %s was at version %d, and is at %d", id, seen[id], version)
				}
				seen[id] = version
			}
		}
	}()
	t.Cleanup(func() { stop(); <-w.ended })
	return w
}

// finish ends the spectator and says how long its longest read took.
func (w *spectator) finish() time.Duration {
	w.stop()
	<-w.ended
	w.t.Logf("%d reads, the longest took %v", w.reads, w.longest)
	return w.longest
}

// spawnRebuild starts a rebuild as a process of its own.
func (s *stage) spawnRebuild(args ...string) *testenv.Process {
	s.t.Helper()
	return testenv.StartProcess(s.t, testenv.ProcessConfig{Args: append([]string{"rebuild", "-o", "json", "--comment", "test"}, args...), Env: s.env()})
}

// awaitAttempt waits until a rebuild waits for somebody who reads the tables.
func (s *stage) awaitAttempt(p *testenv.Process) {
	s.t.Helper()
	p.AwaitOutput(patience, "the tables could not be exchanged yet")
}

// A rebuild, and its rollback, under two members, traffic with every fault, readers, one of whom does not let go of the
// tables, and an operator who decides meanwhile.
func TestRebuildUnderLoad(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.noteRows()
	s.exec(`CREATE VIEW paid_orders AS SELECT order_id, total_minor FROM order_rows WHERE state = 'paid'; CREATE ROLE ` + pgx.Identifier{s.group}.Sanitize() + `;
		GRANT SELECT (order_id, state) ON order_rows TO ` + pgx.Identifier{s.group}.Sanitize() + `; GRANT SELECT ON orders TO ` + pgx.Identifier{s.group}.Sanitize())
	t.Cleanup(func() { s.dropRole() })
	one, two := s.spawn("--instance-id=one"), s.spawn("--instance-id=two")
	awaitOwned(t, one, 2)
	awaitOwned(t, two, 2)
	traffic := s.flow(generate.Config{Seed: seed, Orders: 200_000, Rates: generate.Faulty(), Long: 200, Amendments: 80}, 500)
	s.awaitMarks(patience, map[int32]int64{0: 200, 1: 200, 2: 200, 3: 200})
	s.produce(created("a-skip"), underpaid("a-skip", 2), packed("a-skip", 3), created("a-back"), underpaid("a-back", 2), packed("a-back", 3),
		created("a-gap"), packed("a-gap", 3))
	s.awaitOrder("a-skip", 1, "blocked")
	s.awaitOrder("a-back", 1, "blocked")
	s.operate("", "dlq", "discard", s.letter("a-back", 2), "--skip", "--comment", "a mistake", "--execute")
	reader := s.watchOrders(t)

	release := s.hold(`SELECT count(*) FROM orders`)
	p := s.spawnRebuild()
	s.awaitAttempt(p)
	// Everything that was folded by now is decided otherwise.
	s.operate("", "dlq", "discard", s.letter("a-skip", 2), "--skip", "--comment", "never happened", "--execute")
	s.operate("", "decisions", "undo", fmt.Sprint(ask[int64](s, `SELECT id FROM operator_decisions WHERE order_id = 'a-back'`)), "--comment", "it did", "--execute")
	s.operate("", "gaps", "accept", "a-gap", "--versions", "2", "--comment", "lost", "--execute")
	release()
	if code := p.Wait(patience); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	t.Log(p.Stderr(), p.Stdout())
	s.awaitMarks(patience, after(s.ends())) // the members have followed
	s.awaitOrder("a-skip", 2, "blocked")
	s.awaitOrder("a-back", 1, "blocked")
	s.awaitOrder("a-gap", 2, "blocked") // unpaid goods are not packed
	if n := ask[int](s, `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_depend d ON d.refobjid = c.oid JOIN pg_rewrite r ON r.oid = d.objid
		WHERE c.relname IN ('order_rows', 'order_ledger_archive', 'parked_events') AND n.nspname <> 'public' AND d.classid = 'pg_rewrite'::regclass`); n != 0 {
		t.Errorf("%d columns of views belong to the old tables", n)
	}
	if !ask[bool](s, `SELECT has_column_privilege($1, 'order_rows', 'state', 'SELECT') AND NOT has_column_privilege($1, 'order_rows', 'customer_id', 'SELECT')
		AND has_table_privilege($1, 'orders', 'SELECT') AND (SELECT count(*) > 0 FROM paid_orders)`, s.group) {
		t.Error("grants, or a view over the tables, are gone")
	}
	waited := reader.finish()
	if limit := 500*time.Millisecond + 3*time.Second; waited > limit { // the machine is busy
		t.Errorf("a reader waited for %v", waited)
	}
	s.rebuildUnderLoadEnds(traffic, one, two)
}

func (s *stage) rebuildUnderLoadEnds(traffic *flow, one, two *process) {
	s.t.Helper()
	began := time.Now()
	r := s.rebuild(0, "rollback")
	s.t.Logf("rolled back in %v: %+v", time.Since(began), r)
	if went := ask[string](s, `SELECT coalesce(string_agg(what, ', '), '') FROM went_back WHERE what NOT LIKE 'order a-back %'`); went != "" {
		s.t.Error(went) // a decision that is taken back takes its order back
	}
	if r.Status != "swapped" || r.DifferingOrders != 0 {
		s.t.Errorf("%+v", r)
	}
	s.awaitMarks(patience, after(s.ends()))
	traffic.stop()
	s.awaitDrained()
	s.judge()
	for _, p := range []*process{one, two} {
		if rewinds, _ := metricOf(p, "orderprojector_rewinds_total"); rewinds == 0 {
			s.t.Error("a member has not noticed that the tables were exchanged")
		}
	}
	if n := ask[int](s, `SELECT count(*) FROM audit_log WHERE action IN ('rebuild.swap', 'rebuild.rollback')`); n != 2 {
		s.t.Errorf("%d exchanges are in the audit log", n)
	}
	if got := ask[string](s, `SELECT string_agg(status, ',' ORDER BY id) FROM rebuilds`); got != "rolled_back,swapped" {
		s.t.Error(got)
	}
}

func (s *stage) dropRole() {
	role := pgx.Identifier{s.group}.Sanitize()
	_, err := s.pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
	if err != nil {
		s.t.Error(err)
	}
}

// The process of a rebuild dies (SIGKILL) at random moments, under two members and traffic.
func TestRebuildDies(t *testing.T) {
	t.Parallel()
	const kills = 12
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	one, two := s.spawn("--instance-id=one"), s.spawn("--instance-id=two")
	awaitOwned(t, one, 1)
	awaitOwned(t, two, 1)
	traffic := s.flow(generate.Config{Seed: seed, Orders: 200_000, Rates: generate.Faulty()}, 400)
	s.awaitMarks(patience, map[int32]int64{0: 300, 1: 300})
	reader := s.watchOrders(t)
	orders := int64(0)
	kept := func() bool { // the tables that an exchange replaced
		return ask[bool](s, `SELECT to_regclass('orderprojector_old.order_rows') IS NOT NULL OR to_regclass('orderprojector_rebuild.letters_closed') IS NOT NULL
			AND EXISTS (SELECT FROM rebuilds WHERE status = 'swapped')`)
	}
	for i := range kills {
		back := kept()
		var args []string
		if back && i%2 == 1 {
			args = []string{"rollback"}
		}
		p := s.spawnRebuild(args...)
		switch i % 3 {
		case 0: // at any moment
			awaitTime(time.Duration(rng.IntN(1500)) * time.Millisecond)
		case 1: // once there are tables to fill
			s.awaitSQL(`SELECT to_regclass('orderprojector_rebuild.order_rows') IS NOT NULL OR (SELECT count(*) > $1 FROM rebuilds WHERE finished_at IS NOT NULL)`, i)
			awaitTime(time.Duration(rng.IntN(300)) * time.Millisecond)
		case 2: // about when the tables are exchanged
			s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
				WHERE c.relname = 'projection_watermarks' AND l.mode = 'ExclusiveLock' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
				OR (SELECT count(*) > $1 FROM rebuilds WHERE finished_at IS NOT NULL)`, i)
			awaitTime(time.Duration(rng.IntN(150)) * time.Millisecond)
		}
		p.Kill()
		now := ask[int64](s, `SELECT count(*) FROM orders`)
		if now < orders {
			t.Errorf("%d orders, and %d before", now, orders)
		}
		orders = now
		if back && !kept() {
			t.Error("the tables that an exchange replaced are gone")
		}
	}
	t.Log(ask[string](s, `SELECT string_agg(status, ',' ORDER BY id) FROM rebuilds`))
	s.awaitMarks(patience, after(s.ends()))
	if r := s.rebuild(0); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	p := s.spawnRebuild("rollback")
	s.awaitSQL(`SELECT to_regclass('orderprojector_old.order_rows') IS NULL`)
	p.Kill()
	if r := s.rebuild(0, "rollback"); r.Status != "swapped" { // the one before was cleaned up after
		t.Errorf("%+v", r)
	}
	traffic.stop()
	reader.finish()
	s.awaitDrained()
	s.judge()
	if n := ask[int](s, `SELECT count(*) FROM rebuilds WHERE finished_at IS NULL`); n != 0 {
		t.Errorf("%d rebuilds have not ended", n)
	}
	if !ask[bool](s, `SELECT to_regnamespace('orderprojector_rebuild') IS NULL`) {
		t.Error("something is left of a rebuild")
	}
}

// What differs is counted, listed, and put right only when it is asked for; and taken back by a rollback.
func TestRebuildHeals(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Topic: nil})
	p := s.start()
	for n := range 30 {
		id := fmt.Sprintf("o-%d", n)
		s.produce(on(int32(n%2), created(id)), on(int32(n%2), paid(id, 2)))
	}
	s.produce(created("stuck"), packed("stuck", 2), created("gap"), packed("gap", 4), record("stuck", "nonsense"))
	s.awaitDrained()
	// Another group projects into the same tables.
	s.exec(`INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset, generation, applied)
		SELECT 'other', kafka_topic, topic_id, kafka_partition, 7, 3, 7 FROM projection_watermarks;
		INSERT INTO parked_events (order_id, version, event_id, digest, type, occurred_at, consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset,
			kafka_timestamp, value, headers)
		SELECT order_id, 9, event_id, digest, type, occurred_at, 'other', kafka_topic, topic_id, kafka_partition, kafka_offset,
			kafka_timestamp, value, headers FROM parked_events WHERE order_id = 'gap'`)
	others := func() string {
		return ask[string](s, `SELECT concat_ws('/', (SELECT string_agg(w::text, ',' ORDER BY kafka_partition) FROM projection_watermarks w WHERE consumer_group = 'other'),
			(SELECT string_agg(p::text, ',') FROM parked_events p WHERE consumer_group = 'other'))`)
	}
	other := others()
	before := s.contract()
	copies := ask[int64](s, `SELECT count(*) FROM letter_copies`)
	s.exec(`UPDATE order_rows SET state = 'shipped' WHERE order_id = 'o-1'`)
	s.exec(`DELETE FROM order_rows WHERE order_id = 'o-3'`)
	s.exec(`DELETE FROM parked_events WHERE order_id = 'gap' AND consumer_group <> 'other'`)
	s.exec(`UPDATE dead_letters SET status = 'superseded', closed_at = now() WHERE order_id = 'stuck' AND version = 2`)
	s.exec(`INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, value, headers, reason, detail, blocks)
		SELECT consumer_group, kafka_topic, topic_id, 1, 0, kafka_timestamp, '', headers, 'invalid', 'made up', false FROM dead_letters LIMIT 1`)
	tampered := s.contract()

	r := s.rebuild(3)
	if r.Status != "differs" || r.DifferingOrders != 3 || r.DifferingLetters != 2 {
		t.Errorf("%+v", r)
	}
	causes := map[string]string{}
	for _, d := range r.Differences {
		causes[d.OrderID+" "+d.Cause] = d.Detail
	}
	for what, detail := range map[string]string{
		"o-1 column": "state: expected paid, found shipped", "o-3 missing_row": "the topic gives version 2, paid",
	} {
		if causes[what] != detail {
			t.Errorf("%s: %q in %v", what, causes[what], causes)
		}
	}
	for _, what := range []string{"gap parked", "stuck dead_letter", " dead_letter"} {
		if _, ok := causes[what]; !ok {
			t.Errorf("no %s in %v", what, causes)
		}
	}
	if r := s.rebuild(3, "--dry-run", "--max-diff", "9"); r.Status != "compared" || r.DifferingOrders != 3 {
		t.Errorf("%+v", r)
	}
	if now := s.contract(); now != tampered {
		t.Errorf("nothing was exchanged, and the rows changed: %s, then %s", tampered, now)
	}

	r = s.rebuild(0, "--max-diff", "5")
	if r.Status != "swapped" || r.DifferingOrders != 3 || r.DifferingLetters != 2 {
		t.Errorf("%+v", r)
	}
	s.exec(`DELETE FROM dead_letters WHERE detail = 'made up' AND status = 'superseded'`)
	s.awaitDrained()
	if now := s.contract(); now != before {
		t.Errorf("%s, then %s", before, now)
	}
	if now := others(); now != other {
		t.Errorf("of the other group: %s, and before: %s", now, other)
	}
	// Whoever remembers a row of the old tables misses its guard.
	if n := ask[int](s, `SELECT count(*) FROM order_rows n JOIN orderprojector_old.order_rows o USING (order_id) WHERE n.version = o.version AND n.revision = o.revision`); n != 0 {
		t.Errorf("%d rows have version and revision of the old ones", n)
	}
	s.exec(`DELETE FROM parked_events WHERE consumer_group = 'other'; DELETE FROM projection_watermarks WHERE consumer_group = 'other'`)
	s.produce(paid("gap", 2), created("new"), on(1, packed("o-1", 3)))
	s.awaitDrained()
	s.judge()
	if now := ask[int64](s, `SELECT count(*) FROM letter_copies`); now != copies {
		t.Errorf("%d copies of letters, and %d before", now, copies)
	}
	s.expect(0, "rollback:  possible", "rebuild", "status")

	s.expect(0, "the tables were exchanged", "rebuild", "rollback", "--comment", "as it was")
	if got := ask[string](s, `SELECT state FROM orders WHERE order_id = 'o-1'`); got != "shipped" {
		t.Errorf("after the rollback o-1 is %s", got)
	}
	if n := ask[int](s, `SELECT count(*) FROM orders WHERE order_id IN ('o-3', 'new')`); n != 1 {
		t.Errorf("%d of the orders that were deleted, and came since", n)
	}
	s.expect(0, "the tables were exchanged", "rebuild", "rollback", "--comment", "back again")
	s.produce(created("newer"))
	s.awaitDrained()
	// Letters that only the tampered rows gave rise to were closed.
	s.exec(`DELETE FROM dead_letters WHERE status = 'superseded' AND closed_comment LIKE 'rebuild %'`)
	s.judge()
	p.Stop()
	s.deleteBefore(0, 1)
	s.expect(1, "retention has removed records", "rebuild", "--comment", "x")
}

// A second rebuild is refused; one that runs is told to stop by another process, and by Ctrl-C.
func TestRebuildIsAloneAndStops(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	s.produce(created("a"), paid("a", 2))
	s.awaitDrained()
	before := s.contract()
	release := s.hold(`SELECT count(*) FROM orders`)
	p := s.spawnRebuild()
	s.awaitAttempt(p)
	s.expect(1, "rebuild 1 is running", "rebuild", "--comment", "another")
	s.expect(0, "running:  yes", "rebuild", "status")
	s.expect(0, "aborted", "rebuild", "abort", "--comment", "enough")
	if code := p.Wait(patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	p.AwaitOutput(patience, "aborted by")
	s.expect(4, "a rebuild to abort", "rebuild", "abort", "--comment", "again")

	p = s.spawnRebuild()
	s.awaitAttempt(p)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(patience); code != 130 {
		t.Errorf("exit code %d", code)
	}
	s.expect(1, "could not be exchanged within", "rebuild", "--comment", "impatient", "--give-up-after", "1s")
	if !ask[bool](s, `SELECT to_regnamespace('orderprojector_rebuild') IS NULL`) {
		t.Error("something is left of a rebuild")
	}
	release()
	if now := s.contract(); now != before {
		t.Errorf("%s, then %s", before, now)
	}

	// One died: its tables are removed by abort.
	release = s.hold(`SELECT count(*) FROM orders`)
	p = s.spawnRebuild()
	s.awaitAttempt(p)
	p.Kill()
	s.expect(0, "leftovers:", "rebuild", "status")
	s.expect(0, "aborted", "rebuild", "abort", "--comment", "it died")
	if !ask[bool](s, `SELECT to_regnamespace('orderprojector_rebuild') IS NULL`) {
		t.Error("something is left of a rebuild")
	}
	release()
	s.expect(4, "a rebuild that can be rolled back", "rebuild", "rollback", "--comment", "what")

	// A transaction that began before would see the new tables as they were then.
	release = s.hold(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM audit_log`)
	p = s.spawnRebuild()
	p.AwaitOutput(patience, "holds a snapshot from before")
	release()
	if code := p.Wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.judge()
	if r := s.rebuild(0); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	s.awaitDrained()
	s.judge()

	// A group that is paused can be rebuilt, and stays paused.
	s.operate("paused", "pause", "--comment", "a look at it")
	if r := s.rebuild(0); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	s.operate("paused by", "status")
	s.operate("", "resume", "--comment", "done")

	// A letter that was discarded and purged stays away.
	s.produce(record("a", "nonsense"))
	s.awaitDrained()
	s.operate("", "dlq", "discard", fmt.Sprint(ask[int64](s, `SELECT id FROM dead_letters`)), "--comment", "nonsense", "--execute")
	s.operate("", "dlq", "purge", "--older-than", "0s", "--comment", "old", "--execute")
	if r := s.rebuild(0); r.Status != "swapped" || r.DifferingLetters != 0 || ask[int](s, `SELECT count(*) FROM dead_letters`) != 0 {
		t.Errorf("%+v", r)
	}
	for line, says := range map[string]string{
		"--max-diff -1 --comment x": "negative", "--execute --comment x": "--orders", "--orders a --dry-run --comment x": "in place",
	} {
		s.expect(2, says, append([]string{"rebuild"}, strings.Fields(line)...)...)
	}
	s.expect(2, "--comment is required", "rebuild")
}

// A member's batch hangs in its transaction when the rebuild wants to exchange the tables, and is committed while it waits.
func TestRebuildWithABatchInFlight(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	s.spawn("--instance-id=one", patientLocks, patientStatements)
	s.produce(created("a"), on(1, created("b")))
	s.awaitDrained()
	release := s.holdOrders("a")
	s.produce(paid("a", 2), created("c"), on(1, paid("b", 2)))
	s.awaitBlocked()
	s.awaitMarks(patience, map[int32]int64{1: 2})
	p := s.spawnRebuild()
	s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'orderprojector-rebuild' AND wait_event_type = 'Lock')`)
	release()
	if code := p.Wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.produce(packed("a", 3), on(1, packed("b", 3)))
	s.awaitDrained()
	s.judge()
	s.awaitOrder("a", 3, "ok")
}
