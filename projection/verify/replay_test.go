package verify_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/verify"
)

// replayConfig replays everything below the watermarks.
func (w *world) replayConfig(execute bool) projection.ReplayConfig {
	w.t.Helper()
	reader := pgstore.NewReader(w.pool)
	marks, err := reader.Watermarks(w.t.Context(), group, topic, projection.TopicID{9})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := projection.ReplayConfig{
		Group: group, Store: pgstore.New(w.pool), Older: w.log, Log: w.log, Letters: reader, Execute: execute,
		Marks: map[projection.TopicPartition]projection.Watermark{},
	}
	for partition, mark := range marks {
		cfg.Marks[w.log.Partition(partition)] = mark
		cfg.Ranges = append(cfg.Ranges, projection.LogRange{TopicPartition: w.log.Partition(partition), Until: mark.NextOffset})
	}
	slices.SortFunc(cfg.Ranges, func(a, b projection.LogRange) int { return int(a.Partition - b.Partition) })
	return cfg
}

func (w *world) replay(cfg projection.ReplayConfig) *projection.ReplayResult {
	w.t.Helper()
	result, err := projection.Replay(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// digest is of every row that a replay may change.
func (w *world) digest() (text string) {
	w.t.Helper()
	err := w.pool.QueryRow(w.t.Context(), `SELECT concat_ws('/',
		(SELECT md5(coalesce(string_agg(r::text, '|' ORDER BY order_id), '')) FROM order_rows r),
		(SELECT md5(coalesce(string_agg(l::text, '|' ORDER BY order_id, version), '')) FROM order_ledger_archive l),
		(SELECT md5(coalesce(string_agg(p::text, '|' ORDER BY order_id, version, event_id, digest), '')) FROM parked_events p),
		(SELECT md5(coalesce(string_agg(d::text, '|' ORDER BY id), '')) FROM dead_letters d),
		(SELECT md5(coalesce(string_agg(m::text, '|' ORDER BY kafka_partition), '')) FROM projection_watermarks m))`).Scan(&text)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

func TestReplayOfWhatIsThereChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(300)
	w.projectAll()
	before := w.digest()
	for _, execute := range []bool{false, true} {
		result := w.replay(w.replayConfig(execute))
		if len(result.Changed) > 0 || len(result.Differing) > 0 || result.Outcomes[projection.Applied] > 0 {
			t.Errorf("execute %t: changed %v, differing %v, outcomes %v", execute, result.Changed, result.Differing, result.Outcomes)
		}
		if result.Records == 0 || result.Outcomes.Total() != result.Records {
			t.Errorf("execute %t: %d records, outcomes %v", execute, result.Records, result.Outcomes)
		}
		if now := w.digest(); now != before {
			t.Errorf("execute %t: rows changed", execute)
		}
	}
}

// A dry run foretells exactly what an execution does, and that gives back what
// was lost: rows, archived entries and parked events.
func TestDryRunForetellsTheExecution(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(300)
	w.projectAll()
	w.exec(`DELETE FROM order_ledger_archive WHERE order_id IN (SELECT order_id FROM order_rows WHERE md5(order_id) < '5')`)
	w.exec(`DELETE FROM parked_events WHERE md5(order_id) < '5'`)
	w.exec(`DELETE FROM order_rows WHERE md5(order_id) < '5'`)
	before := w.digest()
	dry := w.replay(w.replayConfig(false))
	if w.digest() != before {
		t.Error("a dry run changed rows")
	}
	done := w.replay(w.replayConfig(true))
	if diff := cmp.Diff(dry, done); diff != "" {
		t.Errorf("the dry run foretold something else:\n%s", diff)
	}
	if len(done.Changed) == 0 || done.Outcomes[projection.Applied] == 0 || len(done.Differing) > 0 {
		t.Errorf("%d rows changed, outcomes %v, differing %v", len(done.Changed), done.Outcomes, done.Differing)
	}
	w.equal(w.verify())
}

func TestReplayOfSomeOrdersAndOfAStretch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.log.Append(0, created(id))
		w.log.Append(0, amended(id, 2))
	}
	w.projectAll()
	w.exec(`DELETE FROM order_rows WHERE order_id IN ('a', 'b')`)
	cfg := w.replayConfig(true)
	cfg.Orders = []string{"b"}
	if result := w.replay(cfg); result.Records != 2 || len(result.Changed) != 1 || result.Changed["b"].After.Version != 2 {
		t.Errorf("%+v", result)
	}
	// From the middle on, what is missing before it keeps the rest waiting.
	cfg = w.replayConfig(true)
	cfg.Ranges[0].From = 1
	if result := w.replay(cfg); result.Parked != 1 || result.Changed["a"].After.WaitingFor != 1 {
		t.Errorf("%+v", result)
	}
	if result := w.replay(w.replayConfig(true)); result.Changed["a"].After.Version != 2 {
		t.Errorf("%+v", result)
	}
	w.equal(w.verify())
}

func TestReplayNamesRowsThatDifferAndLeavesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"amount", "ledger", "good"} {
		w.log.Append(0, created(id))
		w.log.Append(0, amended(id, 2))
	}
	w.projectAll()
	w.exec(`UPDATE order_rows SET total_minor = 7 WHERE order_id = 'amount'`)
	w.exec(`UPDATE order_rows SET ledger_event_ids[2] = 'other' WHERE order_id = 'ledger'`)
	before := w.digest()
	result := w.replay(w.replayConfig(true))
	var ids []string
	for _, d := range result.Differing {
		ids = append(ids, d.OrderID)
	}
	if !slices.Equal(ids, []string{"amount", "ledger"}) || w.digest() != before {
		t.Errorf("%v", result.Differing)
	}
	if got := slices.Sorted(maps.Keys(causes(w.verify()))); !slices.Equal(got, ids) {
		t.Errorf("verify says %v", got)
	}
}

func TestReplayStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(200)
	w.projectAll()
	w.exec(`DELETE FROM order_ledger_archive`)
	w.exec(`DELETE FROM parked_events`)
	w.exec(`DELETE FROM order_rows`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := w.replayConfig(true)
	cfg.Rate = 1e5
	next := map[int32]int64{}
	cfg.Progress = func(p projection.ReplayProgress) {
		next[p.Partition] = p.Next
		if p.Done > p.Total/2 {
			cancel()
		}
	}
	if _, err := projection.Replay(ctx, cfg); err == nil {
		t.Fatal("it was not stopped")
	}
	cfg = w.replayConfig(true)
	for i := range cfg.Ranges {
		cfg.Ranges[i].From = next[cfg.Ranges[i].Partition]
	}
	began := time.Now()
	w.replay(cfg)
	if time.Since(began) > time.Minute {
		t.Error("it takes too long")
	}
	w.config.Selection = verify.Selection{}
	w.equal(w.verify())
}
