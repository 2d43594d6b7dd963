//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// expect runs a command and checks its exit code and what it says.
func (s *stage) expect(code int, contains string, args ...string) string {
	s.t.Helper()
	got, stdout, stderr := s.command(args...)
	if got != code || !strings.Contains(stdout+stderr, contains) {
		s.t.Errorf("%s: exit %d, want %d and %q\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, code, contains, stdout, stderr)
	}
	return stdout
}

// everything is a digest of all that a replay must not touch when it only looks.
func (s *stage) everything() string {
	return ask[string](s, `SELECT concat_ws('/',
		(SELECT md5(coalesce(string_agg(r::text, '|' ORDER BY order_id), '')) FROM order_rows r),
		(SELECT md5(coalesce(string_agg(w::text, '|' ORDER BY kafka_partition), '')) FROM projection_watermarks w),
		(SELECT count(*) FROM parked_events), (SELECT count(*) FROM dead_letters), (SELECT count(*) FROM audit_log))`)
}

// A replay that cannot do what was asked for says so and does nothing; one that
// can never begins behind the first record of the time.
func TestReplayAimedWrong(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 3})
	at := func(minute int, r *kgo.Record) *kgo.Record {
		r.Timestamp = time.Date(2026, 3, 1, 14, minute, 0, 0, time.UTC)
		return r
	}
	// Offsets 0 to 4 of partition 0; the producers' clocks disagree. Partition 2 stays empty.
	s.produce(at(0, created("o-1")), at(30, created("o-2")), at(10, created("o-3")), at(40, created("o-4")), at(20, created("o-5")),
		on(1, at(5, created("o-6"))))
	p := s.start()
	s.awaitDrained()
	p.Stop()
	before, committed := s.everything(), fmt.Sprint(s.committed())

	type view struct {
		Records    int64 `json:"records"`
		Partitions []struct {
			From  int64  `json:"from_offset"`
			Until int64  `json:"until_offset"`
			Note  string `json:"note"`
		} `json:"partitions"`
	}
	const late = "2026-03-01T15:00:00Z"
	s.expect(4, "no record at or after "+late, "replay", "--from-datetime", late)
	for from, want := range map[string]int64{
		"2026-03-01T14:15:00Z": 1, // between two: o-2 is the first, although o-3 behind it is older
		"2026-03-01T14:30:00Z": 1, "2026-03-01T14:35:00Z": 3, "2020-01-01T00:00:00Z": 0,
	} {
		var v view
		s.commandJSON(&v, "replay", "--from-datetime", from)
		if v.Partitions[0].From != want {
			t.Errorf("from %s: begins at %d, want %d", from, v.Partitions[0].From, want)
		}
		if v.Partitions[2].Note != "no record at or after "+from {
			t.Errorf("an empty partition: %q", v.Partitions[2].Note)
		}
	}
	var v view
	s.commandJSON(&v, "replay", "--topic", s.topic+":0", "--from-offset", "1", "--until-datetime", "2026-03-01T14:35:00Z")
	if len(v.Partitions) != 1 || v.Records != 2 || v.Partitions[0].Until != 3 {
		t.Errorf("%+v", v)
	}
	for line, says := range map[string]string{
		"--from-offset 3":                             "beyond the end", // of partition 1
		"--from-offset -1":                            "negative",
		"--from-earliest --until-offset 99":           "beyond the end",
		"--from-earliest --topic " + s.topic + ":0,7": "no partition 7",
		"--from-earliest --topic " + s.topic + ":x":   "not a partition",
		"--from-datetime 14:00":                       "not a time",
		"":                                            "say where to begin",
		"--from-earliest --execute":                   "--comment",
	} {
		s.expect(2, says, append([]string{"replay"}, strings.Fields(line)...)...)
	}
	if now := s.everything(); now != before {
		t.Errorf("a dry run changed the database: %s, then %s", before, now)
	}
	if now := fmt.Sprint(s.committed()); now != committed {
		t.Errorf("offsets moved: %s, then %s", committed, now)
	}
}

// What is missing is found without writing, applied with --execute while the member
// lives, and what differs is left alone and named.
func TestReplayAppliesWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.start()
	for n := range 40 {
		id := fmt.Sprintf("o-%d", n)
		s.produce(on(int32(n%2), created(id)), on(int32(n%2), paid(id, 2)))
	}
	s.produce(packed("o-0", 5), record("o-0", "nonsense"))
	s.abort(created("gone")) // the partition ends in what no consumer sees
	s.awaitDrained()
	want := s.judge()
	s.exec(`DELETE FROM order_rows WHERE order_id IN ('o-3', 'o-4')`)
	s.exec(`UPDATE order_rows SET total_minor = 1 WHERE order_id = 'o-5'`)
	before := s.everything()

	type view struct {
		DryRun   bool             `json:"dry_run"`
		Records  int64            `json:"records"`
		Outcomes map[string]int64 `json:"outcomes"`
		Changed  int64            `json:"rows_changed"`
		Differ   []struct {
			OrderID string `json:"order_id"`
			Cause   string `json:"cause"`
		} `json:"differing"`
		Repair string `json:"repair_command"`
	}
	check := func(v view) {
		t.Helper()
		if v.Records != 82 || v.Outcomes["applied"] != 4 || v.Outcomes["duplicate"] != 76 || v.Outcomes["parked"] != 1 || v.Outcomes["invalid"] != 1 || v.Changed != 2 {
			t.Errorf("%+v", v)
		}
		if len(v.Differ) != 1 || v.Differ[0].OrderID != "o-5" || v.Differ[0].Cause != "total_minor: expected 1999, found 1" || v.Repair != "orderprojector rebuild --orders o-5" {
			t.Errorf("%+v", v.Differ)
		}
	}
	var v view
	s.replayJSON(3, &v, "--from-earliest")
	check(v)
	if now := s.everything(); !v.DryRun || now != before {
		t.Errorf("a dry run changed the database: %s, then %s", before, now)
	}

	state := filepath.Join(t.TempDir(), "replay.state")
	v = view{}
	s.replayJSON(3, &v, "--from-earliest", "--execute", "--comment", "drill", "--resume", state)
	check(v)
	s.exec(`UPDATE order_rows SET total_minor = 1999 WHERE order_id = 'o-5'`)
	s.compare(want)
	if n := ask[int](s, `SELECT count(*) FROM audit_log WHERE action = 'replay' AND comment = 'drill'`); n != 1 {
		t.Errorf("%d rows in the audit log", n)
	}
	s.expect(0, "orders:", "verify")
	s.produce(created("o-99")) // the member is none the worse
	s.awaitDrained()
	s.judge()
}

func (s *stage) replayJSON(code int, into any, args ...string) {
	s.t.Helper()
	stdout := s.expect(code, "", append([]string{"replay", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		s.t.Fatalf("replay %v: %v\n%s", args, err, stdout)
	}
}

// abort produces records in a transaction that is aborted.
func (s *stage) abort(records ...*kgo.Record) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.TransactionalID(s.group), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(s.t, err)
	defer client.Close()
	must(s.t, client.BeginTransaction())
	for _, r := range records {
		r.Topic = s.topic
	}
	must(s.t, client.ProduceSync(s.t.Context(), records...).FirstErr())
	must(s.t, client.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// Verify is right while the member moves on, and names what somebody changed
// behind the program's back.
func TestVerifyUnderTraffic(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.start()
	s.produce(created("o-1"), paid("o-1", 2), created("o-2"), packed("o-2", 3), on(1, created("o-3")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			id := fmt.Sprintf("t-%d", n)
			for _, r := range []*kgo.Record{created(id), packed(id, 3), paid(id, 2)} {
				r.Topic = s.topic
				if err := s.kafka.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	s.awaitSQL(`SELECT count(*) > 100 FROM orders`)
	s.expect(0, "", "verify")
	s.expect(0, "sample", "verify", "--sample", "20")
	close(stop)
	<-done
	s.awaitDrained()
	s.exec(`UPDATE order_rows SET state = 'shipped' WHERE order_id = 'o-1'`)
	s.exec(`DELETE FROM order_rows WHERE order_id = 'o-3'`)
	out := s.expect(3, "2 of ", "verify")
	for _, says := range []string{"column state: expected paid, found shipped", "missing_row"} {
		if !strings.Contains(out, says) {
			t.Errorf("no %q in %s", says, out)
		}
	}
	s.expect(3, "1 of 1 orders", "verify", "--orders", "o-3")
	s.expect(0, "1 equal", "verify", "--orders", "o-2")
}

// An order as it was: also when the record of an event is gone.
func TestOrdersAsTheyWere(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	s.produce(created("o-1"), amended("o-1", 2, "30.00"))
	s.awaitDrained()
	p := testenv.StartProcess(t, testenv.ProcessConfig{Args: []string{"orders", "get", "o-1", "--min-version", "3", "--wait", "60s", "-o", "json"}, Env: s.env()})
	s.produce(amended("o-1", 3, "40.00"))
	if code := p.Wait(patience); code != 0 || !strings.Contains(p.Stdout(), `"version": 3`) {
		t.Errorf("exit %d: %s %s", code, p.Stdout(), p.Stderr())
	}
	s.expect(1, "is at version 3, not at 4, after 50ms", "orders", "get", "o-1", "--min-version", "4", "--wait", "50ms")
	s.expect(4, "nothing is known", "orders", "get", "o-9", "--min-version", "1", "--wait", "50ms")

	s.expect(0, "30.00 EUR", "orders", "as-of", "o-1", "--version", "2")
	s.expect(0, "30.00 EUR", "orders", "as-of", "o-1", "--at", "2026-01-01T10:00:02.5Z")
	s.expect(4, "its first occurred at", "orders", "as-of", "o-1", "--at", "2026-01-01T09:00:00Z")
	s.expect(4, "no version 9", "orders", "as-of", "o-1", "--version", "9")
	diff := s.expect(0, "40.00 EUR", "orders", "diff", "o-1", "--from-version", "1", "--to-version", "3")
	if !strings.Contains(diff, "19.99 EUR") || !strings.Contains(diff, "OrderAmended.v1") {
		t.Error(diff)
	}
	s.deleteBefore(0, 1)
	s.expect(0, "not known", "orders", "as-of", "o-1", "--version", "2")
	s.expect(3, "no longer in the topic", "verify")
	s.expect(0, "", "verify", "--allow-removed")
}
