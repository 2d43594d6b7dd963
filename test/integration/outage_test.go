//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// serverAddress is the host and port of a connection string.
func serverAddress(t testing.TB, dsn string) string {
	t.Helper()
	c, err := pgx.ParseConfig(dsn)
	must(t, err)
	return fmt.Sprintf("%s:%d", c.Host, c.Port)
}

// startPostgres starts a server of the test's own, with the schema.
func startPostgres(t testing.TB) *embedded.Postgres {
	t.Helper()
	p := testenv.StartPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"fsync": "off"}})
	testenv.Migrate(t, p.DSN())
	return p
}

// outage is a stretch without a service, of which the test says how it begins and how it ends. The program
// must keep its partitions through it, report it, and work again soon after.
func (s *stage) outage(program instance, begin, end func(), length time.Duration) {
	s.t.Helper()
	rebalances, _ := metricOf(program, "orderprojector_rebalances_total")
	begin()
	over := time.After(length)
	awaitStatus(s.t, program, "/readyz", 503)
	if status, body := get(program.HTTPAddr(), "/livez"); status != 200 {
		s.t.Errorf("/livez: %d %s", status, body)
	}
	<-over
	end()
	marks := after(s.ends()) // of what comes from now on
	healed := time.Now()
	awaitStatus(s.t, program, "/readyz", 200)
	ready := time.Since(healed)
	took := s.awaitMarks(recovery+10*time.Second, marks)
	s.t.Logf("ready after %v, works again in all partitions after %v", ready, took)
	if ready > 10*time.Second || took+ready > recovery {
		s.t.Errorf("ready %v, working %v after the outage", ready, took+ready)
	}
	if now, _ := metricOf(program, "orderprojector_rebalances_total"); now != rebalances {
		s.t.Errorf("the outage led to %v rebalances", now-rebalances)
	}
}

func awaitStatus(t testing.TB, p instance, path string, status int) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		got, body := get(p.HTTPAddr(), path)
		return got == status, fmt.Sprintf("%s: %d %s", path, got, body)
	})
}

// noLetters checks that an outage is not poison.
func (s *stage) noLetters() {
	s.t.Helper()
	if n := ask[int64](s, `SELECT count(*) FROM dead_letters`); n != 0 {
		s.t.Errorf("%d dead letters", n)
	}
	if c := s.counts(); c.Total() != c[projection.Applied] {
		s.t.Errorf("counts %v of clean traffic", c)
	}
}

// PostgreSQL is stopped for half a minute under load.
func TestOutageDatabaseStopped(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	pg := startPostgres(t)
	s := newStage(t, stageConfig{Partitions: 4, DSN: pg.DSN()})
	s.watchRows()
	p := s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 300)
	awaitOwned(t, p, 4)
	s.awaitMarks(patience, after(s.ends()))
	s.outage(p, func() {
		must(t, pg.Stop(t.Context()))
	}, func() {
		must(t, pg.Start(t.Context()))
	}, 30*time.Second)
	if retried, _ := metricOf(p, "orderprojector_retries_total", `class="transient"`); retried == 0 {
		t.Error("no retries are counted")
	}
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
}

// The network to PostgreSQL becomes a black hole: nothing is refused and nothing answers.
func TestOutageDatabaseBlackHole(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	proxy := testenv.StartPostgresProxy(t, serverAddress(t, s.dsn))
	s.programDSN = proxy.DSN(t, s.dsn)
	p := s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 300)
	awaitOwned(t, p, 4)
	s.awaitMarks(patience, after(s.ends()))

	s.outage(p, func() { proxy.Swallow(testenv.BothWays) }, proxy.Heal, 8*time.Second)

	// A firewall forgets its connections: they stay silent until somebody gives
	// them up, some in the middle of a transaction.
	for range 2 {
		proxy.Silence()
		took := s.awaitMarks(2*recovery, after(s.ends()))
		t.Logf("works again %v after its connections fell silent", took)
		if took > recovery {
			t.Errorf("works again %v after its connections fell silent", took)
		}
	}

	// Answers that are lost: what was committed must not be done twice.
	for range 5 {
		<-proxy.LoseAnswer("COMMIT")
	}
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
}

// failover is a database that fails over to a copy that does not have the last commits.
type failover struct {
	t       testing.TB
	primary *embedded.Postgres
	proxy   *testenv.PostgresProxy
	copied  string
}

func newFailover(t testing.TB) *failover {
	t.Helper()
	f := &failover{t: t, primary: startPostgres(t)}
	f.proxy = testenv.StartPostgresProxy(t, fmt.Sprintf("127.0.0.1:%d", f.primary.Port()))
	return f
}

// dsn reaches whichever server is the primary.
func (f *failover) dsn() string { return f.proxy.DSN(f.t, f.primary.DSN()) }

// copy makes the copy: what is committed later, it does not have.
func (f *failover) copy() {
	f.t.Helper()
	f.copied = testenv.ServerDir(f.t)
	must(f.t, f.primary.Backup(f.t.Context(), f.copied))
}

// over ends the primary and makes the copy take its place.
func (f *failover) over() {
	f.t.Helper()
	f.primary.Kill()
	f.primary = testenv.StartPostgres(f.t, embedded.PostgresConfig{Dir: f.copied, Settings: map[string]string{"fsync": "off"}})
	f.proxy.Retarget(fmt.Sprintf("127.0.0.1:%d", f.primary.Port()))
}

// The database fails over, under a running member, to a copy without the last
// commits: under load, with an idle partition, and then without load at all.
func TestOutageFailoverLosesCommits(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	f := newFailover(t)
	s := newStage(t, stageConfig{Partitions: 4, DSN: f.dsn(), Forgiving: true})
	s.noteRows()
	p := s.spawn("--batch-max-records=300")
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty(), Long: 300, Amendments: 80}, 500)
	awaitOwned(t, p, 4)
	s.awaitMarks(patience, after(s.ends()))
	f.copy()
	kept := s.marks()
	// The copy must be behind what Kafka's group believes.
	s.awaitCommitted(after(s.ends()))
	f.over()
	s.awaitSQL(`SELECT true`)
	t.Logf("the copy knows %v of %v", s.marks(), kept)
	if took := s.awaitMarks(2*recovery, after(s.ends())); took > recovery {
		t.Errorf("works again after %v", took)
	}
	traffic.stop()
	s.awaitDrained()
	s.judge()
	awaitMetric(t, p, func(v float64) bool { return v >= 4 }, "orderprojector_rewinds_total")

	f.copy()
	s.produce(created("only-here"), on(1, created("and-here")))
	s.awaitDrained()
	f.over()
	s.awaitDrained() // no record arrives, and yet it is noticed
	s.judge()
	s.nothingWentBack()
}

func (s *stage) awaitCommitted(at map[int32]int64) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		committed := s.committed()
		for partition, want := range at {
			if committed[partition] < want {
				return false, fmt.Sprintf("committed %v, not %v", committed, at)
			}
		}
		return true, ""
	})
}

// The database fails over while a member reads again, below the watermark, what
// it has applied long ago: before it is where the copy is, and when it is past that.
func TestOutageFailoverWhileReadingAgain(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"below the copy", "above the copy"} {
		t.Run(when, func(t *testing.T) {
			seed := randomSeed(t)
			f := newFailover(t)
			s := newStage(t, stageConfig{DSN: f.dsn(), Forgiving: true})
			s.noteRows()
			traffic := generate.Config{Seed: seed, Orders: 300, Rates: generate.Faulty(), Delay: 50, Long: 50, Amendments: 90}
			records := s.generated(traffic, 1) // of orders that are in flight all the time
			s.produce(records[:len(records)/2]...)
			kept := s.ends()[0]
			p := s.start()
			s.awaitDrained()
			f.copy()
			s.produce(records[len(records)/2:]...)
			s.awaitDrained()
			p.Stop()
			s.rewind(map[int32]int64{0: 0})

			f.proxy.Latency(5 * time.Millisecond) // so that reading again takes its time
			again := s.spawn("--batch-max-records=20")
			moment := kept / 2
			if when == "above the copy" {
				moment = kept + (s.ends()[0]-kept)/4
			}
			awaitMetric(t, again, func(v float64) bool { return v >= float64(moment) }, "orderprojector_consumer_position_offset")
			f.over()
			position, _ := metricOf(again, "orderprojector_consumer_position_offset")
			s.awaitSQL(`SELECT true`)
			t.Logf("failed over at position %v to a copy of watermark %d of %d", position, kept, s.ends()[0])
			if above := position > float64(kept); above != (when == "above the copy") {
				t.Errorf("position %v", position)
			}
			f.proxy.Latency(0)
			s.awaitDrained()
			s.judge()
			s.nothingWentBack()
			awaitMetric(t, again, func(v float64) bool { return v > 0 }, "orderprojector_rewinds_total")
		})
	}
}

// Between two runs the database is restored from a backup, and then replaced
// by an empty one, while Kafka's group is where it was.
func TestOutageDatabaseRestoredBetweenRuns(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	f := newFailover(t)
	s := newStage(t, stageConfig{Partitions: 4, DSN: f.dsn(), Forgiving: true})
	s.noteRows()
	records := s.generated(generate.Config{Seed: seed, Orders: 400, Rates: generate.Faulty(), Delay: 100, Long: 50, Amendments: 90}, 4)
	s.produce(records[:len(records)/2]...)
	p := s.start()
	s.awaitDrained()
	f.copy()
	s.produce(records[len(records)/2:]...)
	s.awaitDrained()
	p.Stop()
	before := s.committed()
	f.over()
	s.awaitSQL(`SELECT true`)

	restored := s.spawn()
	s.awaitDrained()
	s.judge()
	for partition := range before {
		restored.AwaitOutput(patience, fmt.Sprintf("partition=%d committed=%d", partition, before[partition]))
	}
	if out := restored.Stderr(); strings.Count(out, "the group's committed offset is ahead of what is durable in the database") != len(before) {
		t.Errorf("it is not reported:\n%s", out)
	}
	awaitMetric(t, restored, func(v float64) bool { return v > 0 }, "orderprojector_committed_ahead_records")
	if code := restored.Stop(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// An empty database under the same group.
	s.exec(`TRUNCATE order_rows, order_ledger_archive, parked_events, dead_letters, projection_watermarks CASCADE`)
	s.start(func(c *config.Config) { c.Projection.BatchMaxRecords = 500 })
	s.awaitDrained()
	s.judge()
	s.nothingWentBack()
}

// rewind moves the group's committed offsets with Kafka's own tools, which
// takes a group without members.
func (s *stage) rewind(to map[int32]int64) {
	s.t.Helper()
	s.awaitNoMembers()
	s.sampler.During(func() { s.commit(to) })
}

func (s *stage) awaitNoMembers() {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		groups, err := s.admin.DescribeGroups(s.t.Context(), s.group)
		if err != nil {
			return false, err.Error()
		}
		g := groups[s.group]
		return len(g.Members) == 0, fmt.Sprintf("the group is %s with %d members", g.State, len(g.Members))
	})
}
