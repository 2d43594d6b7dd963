//go:build unix

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
)

// operate runs a command of the program and expects it to succeed and to say something.
func (s *stage) operate(says string, args ...string) string {
	s.t.Helper()
	return s.operateCode(0, says, args...)
}

func (s *stage) operateCode(want int, says string, args ...string) string {
	s.t.Helper()
	code, stdout, stderr := s.command(args...)
	if code != want || !strings.Contains(stdout+stderr, says) {
		s.t.Errorf("%q: exit code %d, want %d and %q\n%s%s", args, code, want, says, stdout, stderr)
	}
	return stdout
}

// awaitOrder waits until an order is at a version, with a status.
func (s *stage) awaitOrder(id string, version int64, status string) {
	s.t.Helper()
	s.awaitSQL(`SELECT coalesce((SELECT version = $2 AND projection_status = $3 FROM order_rows WHERE order_id = $1), false)`, id, version, status)
}

func (s *stage) letter(orderID string, version int64) string {
	s.t.Helper()
	return strconv.FormatInt(ask[int64](s, `SELECT max(id) FROM dead_letters WHERE order_id = $1 AND version = $2`, orderID, version), 10)
}

func underpaid(orderID string, version int64) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderPaid.v1", `{"payment_id":"p-1","amount":{"amount":"1.00","currency":"EUR"}}`))
}

// TestOperatorsDecisionsHoldInEveryFold takes every kind of decision by the command line while
// the program runs under load, takes some back, and holds the database against a fold of the topic and
// of the decisions that stand.
func TestOperatorsDecisionsHoldInEveryFold(t *testing.T) {
	s := newStage(t, stageConfig{Partitions: 3, Forgiving: true}) // the projection is emptied under the commits
	p := s.start()
	load := s.flow(generate.Config{Seed: randomSeed(t), Orders: 1_000_000, InFlight: 200, Rates: generate.Faulty()}, 400)
	s.produce(
		created("skip"), underpaid("skip", 2), packed("skip", 3), amended("skip", 4, "19.99"),
		created("sub"), underpaid("sub", 2), packed("sub", 3), shipped("sub", 4),
		created("gap"), paid("gap", 4), packed("gap", 5),
		created("back"), underpaid("back", 2), packed("back", 3),
		created("both"), record("both", "not JSON at all"),
	)
	s.awaitOrder("skip", 1, "blocked")
	s.awaitOrder("sub", 1, "blocked")
	s.awaitOrder("gap", 1, "waiting")
	s.awaitOrder("back", 1, "blocked")
	s.awaitSQL(`SELECT count(*) = 1 FROM dead_letters WHERE order_id = 'both'`)

	s.operate("dry run", "dlq", "discard", s.letter("skip", 2), "--skip", "--comment", "never happened")
	s.operate("version 2, pending; blocked", "dlq", "discard", s.letter("skip", 2), "--skip", "--comment", "never happened", "--execute")
	s.operate("version 4, pending; ok", "dlq", "discard", s.letter("skip", 3), "--skip", "--comment", "nor that", "--execute")
	file := filepath.Join(t.TempDir(), "event.json")
	must(t, os.WriteFile(file, paid("sub", 2).Value, 0o600))
	s.operate("version 4, shipped; ok", "dlq", "redrive", s.letter("sub", 2), "--with", file, "--execute")
	s.operate("version 5, packed; ok", "gaps", "accept", "gap", "--versions", "2-3", "--comment", "lost", "--execute")
	s.operate("", "dlq", "discard", s.letter("back", 2), "--skip", "--comment", "a mistake", "--execute")
	unreadable := strconv.FormatInt(ask[int64](s, `SELECT id FROM dead_letters WHERE order_id = 'both'`), 10)
	must(t, os.WriteFile(file, paid("both", 2).Value, 0o600))
	s.operate("version 2, paid; ok", "dlq", "redrive", unreadable, "--with", file, "--execute")

	undo := func(order string) {
		t.Helper()
		id := strconv.FormatInt(ask[int64](s, `SELECT id FROM operator_decisions WHERE order_id = $1 AND undone_at IS NULL`, order), 10)
		s.operate("dry run", "decisions", "undo", id, "--comment", "it did happen")
		s.operate("after", "decisions", "undo", id, "--comment", "it did happen", "--execute")
		s.operateCode(1, "undone already", "decisions", "undo", id, "--comment", "it did happen", "--execute")
	}
	undo("back")
	s.awaitOrder("back", 1, "blocked")
	undo("both")
	s.awaitOrder("both", 1, "ok")
	s.produce(paid("back", 2), paid("skip", 2), amended("gap", 3, "19.99"), underpaid("sub", 2), paid("both", 2), shipped("gap", 6))
	s.awaitOrder("back", 3, "ok")
	s.awaitOrder("gap", 6, "ok")
	s.awaitOrder("both", 2, "ok")
	load.stop()
	s.awaitDrained()
	s.judge()

	// A new group and an empty projection, with the decisions that stand: the same rows.
	p.Stop()
	s.exec(`TRUNCATE order_rows, order_ledger_archive, parked_events, projection_watermarks; DELETE FROM dead_letters WHERE status NOT IN ('discarded', 'redriven')`)
	p = s.start()
	s.awaitSQL(`SELECT count(*) = 3 FROM projection_watermarks`)
	s.awaitDrained()
	s.awaitOrder("sub", 4, "ok")
	result := s.fold()
	for _, id := range []string{"skip", "sub", "gap", "back", "both"} {
		want := result.Order(id)
		s.awaitOrder(id, want.Version, want.Status)
		if state := ask[string](s, `SELECT state FROM orders WHERE order_id = $1`, id); state != want.State {
			t.Errorf("order %s is %s, want %s", id, state, want.State)
		}
	}
	p.Stop()
}

// TestOffsetsAreSkippedAndGapsRepaired skips records of a group without members, and finds one
// of them again in the log when it turns out to be missed.
func TestOffsetsAreSkippedAndGapsRepaired(t *testing.T) {
	s := newStage(t, stageConfig{})
	p := s.start()
	s.produce(created("a"), packed("a", 3))
	s.awaitOrder("a", 1, "waiting")
	s.awaitDrained()
	p.Stop()
	s.produce(paid("a", 2), record("b", "x"), record("b", "y"))
	s.operateCode(4, "no partition 7", "offsets", "skip", "--partition", "7", "--to", "1", "--comment", "x")
	s.operateCode(2, "beyond the end", "offsets", "skip", "--partition", "0", "--to", "9", "--comment", "x")
	s.operateCode(1, "already", "offsets", "skip", "--partition", "0", "--to", "1", "--comment", "x")
	s.operate("dry run", "offsets", "skip", "--partition", "0", "--to", "5", "--comment", "garbage")
	s.operate("lag", "offsets", "show", "-o", "json")
	s.operate("for a group without members", "offsets", "skip", "--partition", "0", "--to", "5", "--comment", "garbage", "--execute")
	s.start()
	s.produce(shipped("a", 4))
	s.awaitDrained()
	s.awaitOrder("a", 1, "waiting")
	if n := ask[int64](s, `SELECT count(*) FROM dead_letters`); n != 0 {
		t.Errorf("%d dead letters of skipped records", n)
	}
	if lost := ask[int64](s, `SELECT lost_offsets FROM projection_watermarks`); lost != 3 {
		t.Errorf("%d offsets are counted as lost, want 3", lost)
	}
	s.operate("version 2 applied", "gaps", "repair", "a", "--comment", "it was no garbage")
	s.awaitOrder("a", 1, "waiting")
	s.operate("version 2 applied", "gaps", "repair", "a", "--comment", "it was no garbage", "--execute")
	s.awaitOrder("a", 4, "ok")
	s.operateCode(1, "does not wait", "gaps", "repair", "a", "--comment", "again", "--execute")
	s.operate("offsets.skip", "audit", "list")
}

// TestRunningMembersFollowASkip skips records under a member that is paused in front of them.
func TestRunningMembersFollowASkip(t *testing.T) {
	s := newStage(t, stageConfig{})
	p := s.start()
	s.produce(created("a"))
	s.awaitDrained()
	s.operate("paused", "pause", "--comment", "garbage is coming")
	p.awaitHTTP("/healthz/consumption", 503, "paused by")
	for i := range 20 {
		s.produce(record("a", fmt.Sprintf("garbage %d", i)))
	}
	s.produce(paid("a", 2))
	s.operate("by a running member", "offsets", "skip", "--partition", "0", "--to", "21", "--comment", "garbage", "--execute")
	s.operate("", "resume", "--comment", "it is gone")
	s.awaitOrder("a", 2, "ok")
	s.awaitDrained()
	if n := ask[int64](s, `SELECT count(*) FROM dead_letters`); n != 0 {
		t.Errorf("%d dead letters of skipped records", n)
	}
	if marker := ask[bool](s, `SELECT skipped_to IS NULL FROM projection_watermarks`); !marker {
		t.Error("the skip is not known to be committed")
	}
}
