//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// A bug panics in the worker of one of two partitions. The process ends with an error: a partition that
// nobody reads while its member looks alive would be worse (B35 a).
func TestFailurePanicInOneWorker(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	s.produce(created("a"), on(1, created("b")))
	p := testenv.StartProcess(t, testenv.ProcessConfig{
		Package: "./test/integration/testdata/panics", Args: []string{"run"},
		Env: append(s.env(), `PANIC_AT=msg="partition assigned" topic=`+s.topic+` partition=1`),
	})
	if code := p.Wait(patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"the handler panicked: " + s.topic + "-1: a bug", "worker.go"} {
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("it does not say %q:\n%s", want, p.Stderr())
		}
	}
	// It has left its group, so that whoever is there instead, or itself after a restart, goes on at once.
	heir := s.spawn()
	awaitOwnedWithin(t, heir, 2, 8*time.Second)
	s.awaitDrained()
	s.judge()
}

// The worker of one of two partitions waits for the lock of its watermark, which nobody lets go. Its member looks
// alive to the group, so the health of consumption has to tell, by the partition's progress (B35 b).
func TestFailureWorkerWaitsForEver(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	p := s.spawn("--stall-limit="+limit.String(), "--database-lock-timeout=500ms")
	s.produce(created("stuck"), on(1, created("b")))
	s.awaitDrained()
	release := s.hold(`SELECT FROM projection_watermarks WHERE kafka_partition = 0 FOR UPDATE`)
	s.produce(paid("stuck", 2))
	began := time.Now()
	awaitBody(t, p, "/healthz/consumption", 503, s.topic+"-0", "no progress", "SQLSTATE 55P03", "another session held a lock")
	if took := time.Since(began); took < limit || took > limit+10*time.Second {
		t.Errorf("unhealthy after %v, the limit is %v", took, limit)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200} {
		if status, body := get(p.HTTPAddr(), path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	s.produce(on(1, paid("b", 2))) // the other partition does not mind
	s.awaitMarks(patience, map[int32]int64{1: 2})
	release()
	awaitStatus(t, p, "/healthz/consumption", 200)
	s.awaitDrained()
	s.noLetters()
	s.judge()
}

// Members are told to stop while the group is rebalancing: one that was there already, and one that is
// just about to join. They leave within their grace, and the others go on (B35 d).
func TestFailureStopDuringARebalance(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 6})
	s.watchRows()
	one, two := s.spawn(), s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 300)
	awaitOwned(t, one, 3)
	awaitOwned(t, two, 3)
	s.awaitMarks(patience, after(s.ends()))

	for _, which := range []string{"the one that joins", "one that is there"} {
		three := s.spawn()
		s.awaitRebalancing()
		leaving, staying := three, one
		if which == "one that is there" {
			leaving, staying, one = one, three, three
		}
		began := time.Now()
		if code := leaving.Stop(10 * time.Second); code != 0 {
			t.Errorf("%s: exit code %d", which, code)
		}
		stopped := time.Since(began)
		// Who is left has everything, without waiting for a session to expire.
		testenv.Await(t, patience, func() (bool, string) {
			return owned(staying)+owned(two) == 6 && owned(two) == 3, fmt.Sprintf("%d and %d partitions are owned", owned(staying), owned(two))
		})
		s.awaitMarks(patience, after(s.ends()))
		took := time.Since(began)
		t.Logf("%s: stopped after %v, everything is read again after %v", which, stopped, took)
		if took > 8*time.Second {
			t.Errorf("%s: everything is read again %v after SIGTERM", which, took)
		}
	}
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// awaitRebalancing waits until the group is between two assignments.
func (s *stage) awaitRebalancing() {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		groups, err := s.admin.DescribeGroups(s.t.Context(), s.group)
		if err != nil {
			return false, err.Error()
		}
		state := groups[s.group].State
		return state == "PreparingRebalance" || state == "CompletingRebalance", "the group is " + state
	})
}
