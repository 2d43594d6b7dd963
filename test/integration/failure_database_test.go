//go:build unix

package integration_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// databaseAway is how long PostgreSQL is stopped. Nothing that is tested depends on
// it, once it is longer than the group's session.
const databaseAway = 15 * time.Second

// conflicting makes a tenth of the transactions that advance a watermark fail when they commit, by turns with a
// serialization failure and as the victim of a deadlock. Which ones depends on the seed and
// the transaction, so that trying again helps. The sequence conflicts counts them.
func (s *stage) conflicting(seed uint64, raise string) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`CREATE SEQUENCE conflicts;
		CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF abs(hashtext(txid_current() || '-%d')) %% 10 = 0 THEN
				PERFORM nextval('conflicts');
				%s
			END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER conflict AFTER UPDATE ON projection_watermarks DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION conflict()`, seed, raise))
}

const serializationOrDeadlock = `RAISE 'a conflict' USING ERRCODE = CASE txid_current() % 2 WHEN 0 THEN '40001' ELSE '40P01' END;`

// PostgreSQL is stopped under load, comes back in steps, and then cannot serialize a tenth of
// the transactions. Nothing of it is an event's fault.
func TestFailureOfPostgresUnderLoad(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	pg := startPostgres(t)
	s := newStage(t, stageConfig{Partitions: 4, DSN: pg.DSN()})
	s.watchRows()
	proxy := testenv.StartPostgresProxy(t, serverAddress(t, s.dsn))
	s.programDSN = proxy.DSN(t, s.dsn)
	p := s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 200)
	awaitOwned(t, p, 4)
	s.awaitMarks(patience, after(s.ends()))
	rebalances, _ := metricOf(p, "orderprojector_rebalances_total")

	s.outage(p, func() {
		must(t, pg.Stop(t.Context()))
	}, func() {
		proxy.Refuse("57P03", "the database system is starting up")
		must(t, pg.Start(t.Context()))
		s.awaitRetries(p, 2, "transient")
		proxy.Refuse("53300", "sorry, too many clients already")
		s.awaitRetries(p, 2, "transient")
		if status, body := get(p.HTTPAddr(), "/readyz"); status != 503 {
			t.Errorf("/readyz with too many clients: %d %s", status, body)
		}
		proxy.Admit()
	}, databaseAway)

	s.conflicting(seed, serializationOrDeadlock)
	s.awaitSQL(`SELECT last_value >= 12 FROM conflicts`)
	s.exec(`DROP TRIGGER conflict ON projection_watermarks`)
	if n := s.ends(); n[0]+n[1]+n[2]+n[3] < 1000 {
		t.Errorf("only %v records flowed", n)
	}
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
	for class, none := range map[string]bool{"transient": false, "bad_data": true, "infrastructure": true} {
		if n, _ := metricOf(p, "orderprojector_retries_total", fmt.Sprintf("class=%q", class)); (n == 0) != none {
			t.Errorf("%v retries of class %s", n, class)
		}
	}
	if now, _ := metricOf(p, "orderprojector_rebalances_total"); now != rebalances {
		t.Errorf("%v rebalances", now-rebalances)
	}
}

// awaitRetries waits until that many more batches of a class are tried again.
func (s *stage) awaitRetries(p instance, more float64, class string) {
	s.t.Helper()
	label := fmt.Sprintf("class=%q", class)
	before, _ := metricOf(p, "orderprojector_retries_total", label)
	awaitMetric(s.t, p, func(v float64) bool { return v >= before+more }, "orderprojector_retries_total", label)
}

// What only an operator can heal is said clearly, poisons nothing, and work goes on as soon as it is healed.
func TestFailureThatNeedsAnOperator(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	pg := startPostgres(t)
	s := newStage(t, stageConfig{Partitions: 2, DSN: pg.DSN()})
	s.watchRows()
	fill, free := s.diskThatFills(pg)
	s.exec(`CREATE ROLE projector LOGIN PASSWORD 'first'`)
	s.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO projector`)
	s.exec(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO projector`)
	wantPassword(t, pg, "projector")
	s.exec(`SELECT pg_reload_conf()`)
	u, err := url.Parse(s.dsn)
	must(t, err)
	u.User = url.UserPassword("projector", "first")
	s.programDSN = u.String()

	p := s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 200)
	awaitOwned(t, p, 2)
	s.awaitMarks(patience, after(s.ends()))
	rebalances, _ := metricOf(p, "orderprojector_rebalances_total")
	sessions := `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'orderprojector-write'`

	for _, c := range []struct {
		name       string
		begin, end func()
		class      string
		says       []string // the log
		unready    bool
		meanwhile  func()
	}{
		{
			name: "disk full", class: "transient", says: []string{"SQLSTATE 53100", "disk is full"},
			begin: fill, end: free,
		},
		{
			name: "read-only primary", class: "transient", says: []string{"SQLSTATE 25006", "default_transaction_read_only"},
			begin: func() {
				s.exec(`ALTER SYSTEM SET default_transaction_read_only = on`)
				s.exec(`SELECT pg_reload_conf()`)
			},
			meanwhile: func() { // reads are served, and no session with a server that takes no writes is kept
				s.awaitSQL(`SELECT (` + sessions + `) = 0`)
				if status, body := get(p.HTTPAddr(), "/readyz"); status != 200 {
					t.Errorf("/readyz: %d %s", status, body)
				}
			},
			end: func() {
				s.exec(`ALTER SYSTEM RESET default_transaction_read_only`)
				s.exec(`SELECT pg_reload_conf()`)
			},
		},
		{
			name: "revoked grant", class: "infrastructure", says: []string{"SQLSTATE 42501", "lacks a grant"},
			begin: func() { s.exec(`REVOKE UPDATE ON order_rows FROM projector`) },
			end:   func() { s.exec(`GRANT UPDATE ON order_rows TO projector`) },
		},
		{
			name: "wrong schema", class: "infrastructure", says: []string{"SQLSTATE 42P01", "migrate up"},
			begin: func() { s.exec(`ALTER TABLE order_rows RENAME TO elsewhere`) },
			end:   func() { s.exec(`ALTER TABLE elsewhere RENAME TO order_rows`) },
		},
		{
			name: "wrong password after a restart", class: "infrastructure", says: []string{"SQLSTATE 28P01", "refused the password"},
			begin: func() {
				s.exec(`ALTER ROLE projector PASSWORD 'second'`)
				must(t, pg.Restart(t.Context()))
			},
			unready: true,
			end: func() {
				s.awaitSQL(`SELECT true`)
				s.exec(`ALTER ROLE projector PASSWORD 'first'`)
			},
		},
	} {
		c.begin()
		s.awaitRetries(p, 2, c.class)
		if c.class == "infrastructure" { // at once, not only once the partition counts as stalled
			awaitBody(t, p, "/healthz/consumption", 503, c.says...)
		}
		for _, want := range c.says {
			p.AwaitOutput(patience, want)
		}
		if c.meanwhile != nil {
			c.meanwhile()
		}
		if c.unready {
			awaitStatus(t, p, "/readyz", 503)
		}
		if status, body := get(p.HTTPAddr(), "/livez"); status != 200 {
			t.Errorf("%s: /livez: %d %s", c.name, status, body)
		}
		c.end()
		took := s.awaitMarks(2*recovery, after(s.ends()))
		t.Logf("%s: works again after %v", c.name, took)
		if took > recovery {
			t.Errorf("%s: works again after %v", c.name, took)
		}
		awaitStatus(t, p, "/healthz/consumption", 200)
		awaitStatus(t, p, "/readyz", 200)
	}
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
	if now, _ := metricOf(p, "orderprojector_rebalances_total"); now != rebalances {
		t.Errorf("%v rebalances", now-rebalances)
	}
	if strings.Contains(p.Stderr(), "'first'") || strings.Contains(p.Stderr(), ":first@") {
		t.Error("the password is logged")
	}
}

// awaitBody waits until a path answers with that status and all of these texts.
func awaitBody(t testing.TB, p instance, path string, status int, contains ...string) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		got, body := get(p.HTTPAddr(), path)
		ok := got == status
		for _, text := range contains {
			ok = ok && strings.Contains(body, text)
		}
		return ok, fmt.Sprintf("%s: %d %s", path, got, body)
	})
}

// wantPassword makes a server ask one role for its password.
func wantPassword(t testing.TB, pg *embedded.Postgres, role string) {
	t.Helper()
	file := filepath.Join(pg.Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, append([]byte("host all "+role+" 127.0.0.1/32 scram-sha-256\n"), rules...), 0o600))
}

// diskThatFills puts the orders on a disk of their own, a small file system in memory, and returns what fills it up and
// what makes room again. Where there is no right to mount one, the database
// says instead that the disk is full.
func (s *stage) diskThatFills(pg *embedded.Postgres) (fill, free func()) {
	s.t.Helper()
	mount := testenv.ServerDir(s.t)
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=64m,mode=0755"); err != nil {
		s.t.Logf("no file system of its own: %v", err)
		s.exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$`)
		return func() {
				s.exec(`CREATE TRIGGER full_disk BEFORE INSERT ON order_rows FOR EACH ROW EXECUTE FUNCTION full_disk()`)
			}, func() {
				s.exec(`DROP TRIGGER full_disk ON order_rows`)
			}
	}
	s.t.Cleanup(func() { must(s.t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
	tablespace, ballast := filepath.Join(mount, "tablespace"), filepath.Join(mount, "ballast")
	must(s.t, os.Mkdir(tablespace, 0o700))
	info, err := os.Stat(filepath.Join(pg.Dir(), "data"))
	must(s.t, err)
	owner := info.Sys().(*syscall.Stat_t)
	must(s.t, os.Chown(tablespace, int(owner.Uid), int(owner.Gid)))
	s.exec(`CREATE TABLESPACE small LOCATION '` + tablespace + `'`)
	s.exec(`ALTER TABLE order_rows SET TABLESPACE small`)
	return func() {
			f, err := os.Create(ballast)
			must(s.t, err)
			defer f.Close()
			for block := make([]byte, 4096); err == nil; {
				_, err = f.Write(block)
			}
		}, func() {
			must(s.t, os.Remove(ballast))
		}
}

// The answer to a COMMIT is lost, in every way: its outcome is looked up in the database, not guessed.
func TestFailureCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	proxy := testenv.StartPostgresProxy(t, serverAddress(t, s.dsn))
	s.programDSN = proxy.DSN(t, s.dsn)
	first := proxy.LoseAnswer("COMMIT") // of what a member writes when it gets a partition
	p := s.spawn("--writers=1", "--batch-max-records=20", "--database-statement-timeout=1s", "--database-lock-timeout=500ms")
	<-first
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty(), Long: 20, Amendments: 80, Delay: 100}, 300)
	awaitOwned(t, p, 2)
	s.awaitMarks(patience, after(s.ends()))

	retries := func() float64 {
		v, _ := metricOf(p, "orderprojector_retries_total")
		return v
	}
	// It was done, and nobody says so.
	for before := retries(); retries() < before+8; {
		<-proxy.LoseAnswer("COMMIT")
	}
	// The same, on a connection that stays open.
	for strings.Count(p.Stderr(), "no result within 2s") < 2 { // other commits than a batch's may be hit
		<-proxy.HangAnswer("COMMIT")
		s.awaitMarks(patience, after(s.ends()))
	}
	// It was not done: the session ends inside of COMMIT.
	s.conflicting(seed, `PERFORM pg_terminate_backend(pg_backend_pid());`)
	s.awaitSQL(`SELECT last_value >= 8 FROM conflicts`)
	s.exec(`DROP TRIGGER conflict ON projection_watermarks`)
	traffic.stop()
	s.awaitDrained()
	s.judge()
	if n := s.counts(); n.Total() == n[projection.Applied] {
		t.Errorf("counts %v: the traffic was to be faulty", n)
	}
}
