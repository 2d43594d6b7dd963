//go:build unix

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// While two members run and commit, replays, aimed well and wrong, and a rebuild neither move the
// group's offsets (which is watched all along) nor repeat what a record once led to.
func TestReplayUnderTwoMembers(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	testenv.CreateTopic(t, s.brokers, s.topic+"-dlt", 1)
	one, two := s.spawn("--instance-id=one"), s.spawn("--instance-id=two")
	awaitOwned(t, one, 2)
	awaitOwned(t, two, 2)
	traffic := s.flow(generate.Config{Seed: seed, Orders: 200_000, Rates: generate.Faulty()}, 300)
	s.awaitMarks(patience, map[int32]int64{0: 100, 1: 100, 2: 100, 3: 100})

	late := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s.expect(4, "no record at or after "+late, "replay", "--from-datetime", late, "--execute", "--comment", "aimed wrong")
	s.expect(2, "beyond the end", "replay", "--from-offset", "9999999", "--execute", "--comment", "aimed wrong")
	s.expect(0, "", "replay", "--from-offset", "0", "--execute", "--comment", "under members")
	s.expect(0, "", "replay", "--from-duration", "1h", "--execute", "--comment", "under members")
	traffic.stop()
	s.awaitDrained()
	s.judge()
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM letter_copies WHERE copied_attempts < attempts)`)

	effects := func() string {
		t.Helper()
		ends, err := s.admin.ListEndOffsets(t.Context(), s.topic+"-dlt")
		must(t, err)
		end, _ := ends.Lookup(s.topic+"-dlt", 0)
		return fmt.Sprintf("%d copies of letters; %s", end.Offset, ask[string](s, `SELECT concat_ws(' ', (SELECT count(*) FROM letter_copies), 'to be copied,',
			(SELECT sum(attempts) FROM dead_letters), 'attempts,', (SELECT count(*) FROM outbox), 'messages,',
			(SELECT count(*) FROM audit_log WHERE action NOT IN ('replay', 'rebuild.swap', 'rebuild.rollback')), 'other actions')`))
	}
	before, actions := effects(), ask[int](s, `SELECT count(*) FROM audit_log`)
	s.expect(0, "", "replay", "--from-earliest")
	s.expect(0, "", "replay", "--from-earliest", "--execute", "--comment", "once more")
	s.rebuild(0, "--dry-run")
	s.rebuild(0)
	s.rebuild(0, "rollback")
	if now := effects(); now != before {
		t.Errorf("%s; before: %s", now, before)
	}
	if now := ask[int](s, `SELECT count(*) FROM audit_log`); now != actions+3 {
		t.Errorf("%d rows in the audit log, and %d before three actions", now, actions)
	}
	s.produce(created("last"))
	s.awaitDrained()
	s.judge()
}

// A replay that was interrupted goes on where it was; stretches are of the partitions, offsets and times that were asked for.
func TestReplayStretches(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 3})
	s.start()
	var records []*kgo.Record
	for n := range 60 {
		id := fmt.Sprintf("o-%d", n)
		records = append(records, on(int32(n%3), created(id)), on(int32(n%3), paid(id, 2)))
	}
	old := created("old")
	old.Timestamp = time.Now().Add(-3 * time.Hour)
	s.produce(append([]*kgo.Record{old}, records...)...)
	s.awaitDrained()
	s.exec(`DELETE FROM order_rows`)

	type view struct {
		Records    int64            `json:"records"`
		Outcomes   map[string]int64 `json:"outcomes"`
		Changed    int64            `json:"rows_changed"`
		Partitions []struct {
			Partition int32 `json:"kafka_partition"`
			From      int64 `json:"from_offset"`
			Until     int64 `json:"until_offset"`
		} `json:"partitions"`
	}
	for _, c := range []struct {
		args    string
		records int64
		spans   string
	}{
		{"--from-duration 1h", 120, "0:1-41 1:0-40 2:0-40"},
		{"--from-duration 4h", 121, "0:0-41 1:0-40 2:0-40"},
		{"--from-earliest --until-offset 10", 30, "0:0-10 1:0-10 2:0-10"},
		{"--from-offset 4 --until-offset 10 --topic " + s.topic + ":0,1", 12, "0:4-10 1:4-10"},
		{"--from-earliest --topic " + s.topic + ":2", 40, "2:0-40"},
	} {
		var v view
		s.commandJSON(&v, append([]string{"replay"}, strings.Fields(c.args)...)...)
		var spans []string
		for _, p := range v.Partitions {
			spans = append(spans, fmt.Sprintf("%d:%d-%d", p.Partition, p.From, p.Until))
		}
		if v.Records != c.records || strings.Join(spans, " ") != c.spans {
			t.Errorf("%s: %d records of %v, want %d of %s", c.args, v.Records, spans, c.records, c.spans)
		}
	}

	state := filepath.Join(t.TempDir(), "replay.state")
	args := []string{"replay", "-o", "json", "--from-earliest", "--execute", "--comment", "in two parts", "--resume", state}
	p := testenv.StartProcess(t, testenv.ProcessConfig{Args: append(args, "--rate", "20"), Env: s.env()})
	s.awaitSQL(`SELECT count(*) >= 10 FROM orders`)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(patience); code != 130 {
		t.Errorf("exit code %d", code)
	}
	done := ask[int64](s, `SELECT count(*) FROM orders`)
	if done == 61 {
		t.Error("it was not interrupted in the middle")
	}
	if _, err := os.Stat(state); err != nil {
		t.Error("the position is not kept:", err)
	}
	s.expect(2, "state of another replay", "replay", "--from-earliest", "--resume", state)
	var v view
	s.replayJSON(0, &v, args[3:]...)
	if v.Records >= 121 || v.Records == 0 {
		t.Errorf("%d records were replayed by the second part", v.Records)
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("the position is kept although all is done")
	}
	s.awaitDrained()
	s.judge()
}
