//go:build unix

package integration_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// effectStage is a stage of either consumer beside the projector, with its judge.
type effectStage struct {
	*consumerStage
	judge    func() // compares, event by event, with the topic
	receiver *testenv.WebhookReceiver
}

// effectStages are how the stages of both consumers are made. The receiver of notifications misbehaves with every tenth
// message or so.
var effectStages = map[string]func(testing.TB, stageConfig) *effectStage{
	"loyalty": func(t testing.TB, config stageConfig) *effectStage {
		t.Helper()
		s := newLoyaltyStage(t, config)
		return &effectStage{consumerStage: s, judge: s.judgePoints}
	},
	"notifications": func(t testing.TB, config stageConfig) *effectStage {
		t.Helper()
		s := newNotificationStage(t, config, misbehave)
		return &effectStage{consumerStage: s.consumerStage, receiver: s.receiver, judge: func() {
			t.Helper()
			s.awaitSettled()
			s.judgeNotifications()
		}}
	},
}

// misbehave makes a receiver fail with some messages, the first time.
func misbehave(d testenv.WebhookDelivery, attempt int) testenv.WebhookReply {
	h := fnv.New32a()
	_, _ = h.Write([]byte(d.Key))
	if attempt > 1 {
		return testenv.ReplyOK
	}
	switch h.Sum32() % 40 {
	case 0:
		return testenv.ReplyCut
	case 1:
		return testenv.ReplyDrop
	case 2:
		return testenv.ReplyHang
	case 3:
		return testenv.ReplyError
	}
	return testenv.ReplyOK
}

// forEffects runs a test for both consumers at the same time.
func forEffects(t *testing.T, config stageConfig, test func(*testing.T, *effectStage)) {
	t.Helper()
	for name, stage := range effectStages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, stage(t, config))
		})
	}
}

// somePayments are of orders that nobody else uses.
func somePayments(name string, n int) []*kgo.Record {
	var records []*kgo.Record
	for i := range n {
		id := fmt.Sprintf("%s-%d", name, i)
		records = append(records, createdBy(id, "c-"+name), paidWith(id, 2, "p-"+id, "19.99", "EUR", ""), refundedWith(id, 3, "r-"+id, "5.00", "EUR", ""))
	}
	return records
}

// Two members die (SIGKILL) again and again, at random moments.
func TestEffectsCrashAtRandomMoments(t *testing.T) {
	t.Parallel()
	const kills = 22
	seed := randomSeed(t)
	forEffects(t, stageConfig{Partitions: 4}, func(t *testing.T, s *effectStage) {
		rng := rand.New(rand.NewPCG(seed, 3))
		spawn := func(i int) *process {
			return s.spawn(fmt.Sprintf("--instance-id=member-%d", i), "--batch-max-records=100")
		}
		members := []*process{spawn(0), spawn(1)}
		traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 400)
		moved, before := 0, int64(0)
		for range kills {
			i := rng.IntN(len(members))
			if rng.IntN(2) == 0 {
				awaitMetric(t, members[i], func(v float64) bool { return v > 0 }, "orderprojector_batch_records_count")
			}
			awaitTime(time.Duration(rng.IntN(400)) * time.Millisecond)
			members[i].Kill()
			total := int64(0)
			for _, mark := range s.marks() {
				total += mark
			}
			if total > before {
				moved++
			}
			before = total
			members[i] = spawn(i)
		}
		if moved < kills/3 {
			t.Errorf("the watermarks moved between %d of %d crashes only", moved, kills)
		}
		traffic.stop()
		s.awaitDrained()
		s.judge()
	})
}

// Members join and leave, and partitions move between them under load.
func TestEffectsMembersJoinAndLeave(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	forEffects(t, stageConfig{Partitions: 4}, func(t *testing.T, s *effectStage) {
		small := func(c *config.Config) { c.Projection.BatchMaxRecords = 50 }
		first := s.start(small)
		traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 300)
		awaitOwned(t, first, 4)
		for range 2 {
			second := s.start(small)
			awaitOwned(t, first, 2)
			awaitOwned(t, second, 2)
			s.awaitMarks(patience, after(s.marks()))
			first.Stop()
			awaitOwned(t, second, 4)
			first = second
		}
		traffic.stop()
		s.awaitDrained()
		s.judge()
	})
}

// The process dies when all is written and nothing is committed.
func TestDrillDiesBeforeCommit(t *testing.T) {
	t.Parallel()
	forEffects(t, stageConfig{}, func(t *testing.T, s *effectStage) {
		p := s.spawn("--instance-id=one")
		awaitOwned(t, p, 1)
		release := s.hold(`LOCK TABLE consumed_events IN SHARE MODE`) // where a transaction writes what it has consumed
		s.produce(somePayments("a", 5)...)
		s.awaitBlocked()
		p.Kill()
		release()
		if n := ask[int64](s.stage, `SELECT (SELECT count(*) FROM consumed_events) + (SELECT count(*) FROM points_ledger) + (SELECT count(*) FROM notifications)`); n != 0 {
			t.Errorf("%d rows of a transaction that did not commit", n)
		}
		s.spawn("--instance-id=one")
		s.awaitDrained()
		s.judge()
	})
}

// The process dies when all is committed, and Kafka does not know yet.
func TestDrillDiesAfterCommitBeforeAck(t *testing.T) {
	t.Parallel()
	forEffects(t, stageConfig{}, func(t *testing.T, s *effectStage) {
		s.produce(somePayments("first", 1)...)
		for i := range 10 {
			p := s.spawn("--instance-id=one")
			s.awaitDrained()
			before := s.marks()[0]
			s.produce(somePayments(fmt.Sprintf("round%d", i), 3)...)
			testenv.Await(t, patience, func() (bool, string) {
				mark := s.marks()[0]
				return mark > before, fmt.Sprintf("the watermark is %d", mark)
			})
			p.Kill()
			mark := s.marks()[0]
			if committed, any := s.committed()[0]; !any || committed >= mark {
				continue
			}
			again := s.spawn("--instance-id=one")
			s.awaitDrained()
			s.judge()
			if n, _ := metricOf(again, "orderprojector_reread_records_total"); n == 0 {
				t.Error("nothing was read again")
			}
			return
		}
		t.Fatal("no crash came between the two commits")
	})
}

// A member's transaction outlasts its ownership of the partition: the member is frozen in the middle of it, another one gets the
// partition and works on the same records, and then both go on.
func TestDrillOutlivesItsOwnership(t *testing.T) {
	t.Parallel()
	forEffects(t, stageConfig{}, func(t *testing.T, s *effectStage) {
		slow := s.spawn("--session-timeout=6s", "--database-lock-timeout=30s", "--database-statement-timeout=30s")
		awaitOwned(t, slow, 1)
		release := s.hold(`LOCK TABLE consumed_events IN SHARE MODE`)
		s.produce(somePayments("a", 5)...)
		s.awaitBlocked()
		slow.Pause()
		heir := s.spawn("--session-timeout=6s", "--database-lock-timeout=30s", "--database-statement-timeout=30s")
		// The heir waits for the transaction of the one that the group believes dead.
		s.awaitSQL(`SELECT count(*) >= 2 FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'orderprojector-write' AND wait_event_type = 'Lock'`)
		slow.Resume()
		release()
		s.produce(somePayments("b", 5)...)
		s.awaitDrained()
		s.judge()
		slow.Kill()
		awaitOwned(t, heir, 1)
		s.produce(somePayments("c", 5)...)
		s.awaitDrained()
		s.judge()
	})
}

// A sender is frozen while the receiver works, for longer than its claim; another one finishes the work, and then it goes on.
func TestDrillOutlivesItsClaim(t *testing.T) {
	t.Parallel()
	s := newNotificationStage(t, stageConfig{}, func(testenv.WebhookDelivery, int) testenv.WebhookReply { return testenv.ReplyHang })
	slow := s.spawn("--session-timeout=6s", "--webhook-timeout=3s")
	awaitOwned(t, slow, 1)
	s.produce(somePayments("a", 1)...)
	s.receiver.Await(patience, func() bool { return len(s.receiver.Acted()) == 1 })
	slow.Pause()
	s.exec(`UPDATE notifications SET due_at = now()`) // its claim runs out, without the test waiting for that
	s.spawn("--session-timeout=6s")
	s.awaitStates(map[string]string{"a-0-e2": "sent"})
	slow.Resume()
	slow.AwaitOutput(patience, "somebody else has claimed the notification by now")
	s.awaitDrained()
	s.judgeNotifications()
}

// The process dies when the receiver has acted, and nobody has written that down.
func TestDrillDiesBetweenSendingAndMarking(t *testing.T) {
	t.Parallel()
	s := newNotificationStage(t, stageConfig{}, func(testenv.WebhookDelivery, int) testenv.WebhookReply { return testenv.ReplyHang })
	p := s.spawn("--instance-id=one", "--webhook-timeout=60s")
	awaitOwned(t, p, 1)
	s.produce(somePayments("a", 3)...)
	s.receiver.Await(patience, func() bool { return len(s.receiver.Acted()) == 3 })
	p.Kill()
	if n := ask[int64](s.stage, `SELECT count(*) FROM notifications WHERE state = 'sending' AND attempts = 1`); n != 3 {
		t.Errorf("%d notifications are sending", n)
	}
	s.exec(`UPDATE notifications SET due_at = now()`)
	s.spawn("--instance-id=one")
	s.awaitDrained()
	s.awaitSettled()
	s.judgeNotifications()
	if n := len(s.receiver.Deliveries("")); n != 3 {
		t.Errorf("%d deliveries", n)
	}
}

// The database fails over to a copy without the last commits, under load and without: rows come back by reading
// again, what was sent is found out by asking, and nothing has its effect twice.
func TestEffectsFailoverLosesCommits(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	f := newFailover(t)
	var stages []*effectStage
	var members []*process
	var flows []*flow
	for _, name := range []string{"loyalty", "notifications"} {
		s := effectStages[name](t, stageConfig{Partitions: 2, DSN: f.dsn(), Forgiving: true})
		stages, members = append(stages, s), append(members, s.spawn("--batch-max-records=50"))
		flows = append(flows, s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 200))
	}
	for i, s := range stages {
		awaitOwned(t, members[i], 2)
		s.awaitMarks(patience, after(s.ends()))
	}
	f.copy()
	for _, s := range stages {
		s.awaitCommitted(after(s.ends())) // the copy must be behind what Kafka's group believes
	}
	f.over()
	stages[0].awaitSQL(`SELECT true`)
	for i, s := range stages {
		s.awaitMarks(patience, after(s.ends()))
		flows[i].stop()
		s.awaitDrained()
		s.judge()
		awaitMetric(t, members[i], func(v float64) bool { return v >= 1 }, "orderprojector_rewinds_total")
	}

	f.copy()
	for _, s := range stages {
		s.produce(somePayments("only-here", 3)...)
		s.awaitDrained()
		s.judge()
	}
	f.over()
	for _, s := range stages {
		s.awaitDrained() // no record arrives, and yet it is noticed
		s.judge()
	}
}

// Reading again on purpose: by a replay, and by a live group whose offsets somebody has moved back.
func TestReplayOfEffectsOnce(t *testing.T) {
	t.Parallel()
	s := newLoyaltyStage(t, stageConfig{Partitions: 2})
	p := s.start()
	var records []*kgo.Record
	for i, r := range somePayments("o", 10) {
		records = append(records, on(int32(i/3%2), r))
	}
	s.produce(records...)
	s.awaitDrained()
	p.Stop()
	const ledger = `SELECT string_agg(source || ' ' || customer_id || ' ' || delta, E'\n' ORDER BY source) FROM points_ledger`
	before := ask[string](s.stage, ledger)
	replay := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := s.command(append([]string{"replay", "--consumer=loyalty", "--from-earliest", "-o", "json"}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("replay %v: exit code %d, without %s\n%s%s", args, got, want, stdout, stderr)
		}
	}
	replay(0, `"duplicate": 30`, "--execute", "--comment=x")
	if now := ask[string](s.stage, ledger); now != before {
		t.Errorf("a replay changed the ledger:\n%s\nbefore:\n%s", now, before)
	}
	s.exec(`DELETE FROM points_ledger WHERE order_id IN ('o-3', 'o-4')`)
	s.exec(`DELETE FROM consumed_events WHERE order_id IN ('o-3', 'o-4') AND event_id NOT LIKE '%e1'`)
	less := ask[string](s.stage, ledger)
	replay(0, `"applied": 4`)
	replay(0, `"applied": 2`, "--orders=o-3")
	if now := ask[string](s.stage, ledger); now != less {
		t.Error("a dry run changed the ledger")
	}
	replay(0, `"applied": 4`, "--execute", "--comment=lost rows")
	if now := ask[string](s.stage, ledger); now != before {
		t.Errorf("what was missing is not there again:\n%s\nbefore:\n%s", now, before)
	}
	replay(2, "is not one of", "--consumer=nobody")

	s.rewind(map[int32]int64{0: 0, 1: 0})
	s.start()
	s.awaitDrained()
	if now := ask[string](s.stage, ledger); now != before {
		t.Errorf("reading again changed the ledger:\n%s\nbefore:\n%s", now, before)
	}
	s.judgePoints()
}

func TestReplayOfEffectsSuppressed(t *testing.T) {
	t.Parallel()
	s := newNotificationStage(t, stageConfig{}, nil)
	p := s.start()
	s.produce(somePayments("o", 10)...)
	s.awaitDrained()
	s.awaitSettled()
	p.Stop()
	replay := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := s.command(append([]string{"replay", "--consumer=notifications", "--from-earliest", "-o", "json"}, args...)...)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("replay %v: exit code %d, without %s\n%s%s", args, code, want, stdout, stderr)
		}
	}
	forget := func(like string) {
		s.exec(`DELETE FROM notifications WHERE event_id LIKE $1`, like)
		s.exec(`DELETE FROM consumed_events WHERE event_id LIKE $1`, like)
	}
	replay(`"duplicate": 10`, "--execute", "--comment=x")
	forget("o-3-%")
	replay(`"suppressed": 1`)
	replay(`"suppressed": 1`, "--execute", "--comment=x")
	forget("o-4-%")
	s.rewind(map[int32]int64{0: 0})
	s.start()
	s.produce(somePayments("new", 1)...)
	s.awaitDrained()
	want := map[string]string{"new-0-e2": "sent"}
	for i := range 10 {
		want[fmt.Sprintf("o-%d-e2", i)] = "sent"
	}
	want["o-3-e2"], want["o-4-e2"] = "suppressed", "suppressed"
	s.awaitStates(want)
	if n := len(s.receiver.Deliveries("")); n != 11 {
		t.Errorf("%d deliveries of 11 payments", n)
	}
	// An operator wants it sent after all; the receiver says that it has acted long ago.
	if code, _, stderr := s.command("notifications", "retry", "o-3-e2"); code != 0 {
		t.Error(stderr)
	}
	want["o-3-e2"] = "sent"
	s.awaitStates(want)
	if n := len(s.receiver.Deliveries("")); n != 11 {
		t.Errorf("%d deliveries of 11 payments", n)
	}
}
