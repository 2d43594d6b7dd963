package verify_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/projection/verify"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	group = "g"
	topic = "orders.events"
)

// world is a topic with a projection of it.
type world struct {
	t         *testing.T
	log       *projectiontest.Log
	pool      *pgxpool.Pool
	projector *projection.Projector
	config    verify.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	pgstore.PrepareWriter(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log := projectiontest.NewLog(topic, projection.TopicID{9}, 3)
	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: group, Store: pgstore.New(pool), Older: log})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, log: log, pool: pool, projector: projector, config: verify.Config{
		Group: group, Topic: topic, Log: log, Records: log, DB: pool, Rechecks: []time.Duration{},
	}}
}

// traffic appends generated records, with every fault, and returns the IDs of the orders.
func (w *world) traffic(orders int) {
	w.t.Helper()
	stream, err := generate.New(generate.Config{Seed: 6, Orders: orders, Rates: generate.Faulty(), Long: 30, Amendments: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for g := range stream.All() {
		w.log.Append(partitionOf(string(g.PartitionKey)), projection.Record{Key: g.Key, Value: g.Value})
	}
}

func partitionOf(key string) int32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int32(h.Sum32() % 3)
}

// project applies a partition from the watermark up to an offset, in two batches.
func (w *world) project(partition int32, until int64) {
	w.t.Helper()
	ranges, err := w.log.Ranges(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	handler, start, err := w.projector.Assign(w.t.Context(), projection.Assignment{
		TopicPartition: w.log.Partition(partition), Group: group, Committed: projection.NoOffset,
		LogStart: ranges[partition].From, LogEnd: ranges[partition].Until,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	records := slices.DeleteFunc(w.log.Records(partition), func(r projection.Record) bool { return r.Offset < start.Offset || r.Offset >= until })
	for batch := range slices.Chunk(records, len(records)/2+1) {
		if err := handler.Handle(w.t.Context(), batch); err != nil {
			w.t.Fatal(err)
		}
	}
	handler.Close()
}

func (w *world) projectAll() {
	for p := range int32(3) {
		w.project(p, 1<<62)
	}
}

func (w *world) verify() *verify.Report {
	w.t.Helper()
	report, err := verify.Run(w.t.Context(), w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	tag, err := w.pool.Exec(w.t.Context(), sql, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	if tag.RowsAffected() == 0 {
		w.t.Fatalf("%s: no row", sql)
	}
}

func (w *world) equal(report *verify.Report) {
	w.t.Helper()
	if !report.Same() || report.Unverifiable != 0 {
		w.t.Errorf("%d of %d differ: %v; letters %v; counts %v", report.Differing, report.Orders, report.Differences, report.Letters, report.Accounts)
	}
}

// event is a record of an order's event.
func event(order string, version int, kind, data string) projection.Record {
	return eventWithID(order, fmt.Sprintf("%s-%d", order, version), version, kind, data)
}

func eventWithID(order, id string, version int, kind, data string) projection.Record {
	return projection.Record{Key: []byte(order), Value: fmt.Appendf(nil,
		`{"event_id":%q,"order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:%02dZ","data":%s}`,
		id, order, kind, version, version%60, data)}
}

func created(order string) projection.Record {
	return event(order, 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"10.00","currency":"EUR"}}`)
}

func amended(order string, version int) projection.Record {
	return event(order, version, "OrderAmended.v1", fmt.Sprintf(`{"total":{"amount":"%d.00","currency":"EUR"}}`, version))
}

func TestEqualAfterFaultyTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(400)
	w.projectAll()
	report := w.verify()
	w.equal(report)
	if report.Orders < 300 || report.Equal != report.Orders || report.Waiting == 0 || report.Blocked == 0 {
		t.Errorf("%+v", report)
	}

	w.config.Selection = verify.Selection{Sample: 50, Seed: 7}
	sample := w.verify()
	w.equal(sample)
	if sample.Orders < 40 || sample.Orders > 50 {
		t.Errorf("a sample of %d orders", sample.Orders)
	}
}

func TestWhatIsAboveTheWatermarkIsNoDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(100)
	w.project(0, 60)
	w.project(1, 100)
	report := w.verify() // partition 2 was never assigned
	w.equal(report)
	if p := report.Partitions[0]; p.Watermark != 60 || p.NotYet != p.LogEnd-60 {
		t.Errorf("%+v", p)
	}
	if p := report.Partitions[2]; !p.Unassigned || p.NotYet != p.LogEnd {
		t.Errorf("%+v", p)
	}
}

// causes maps orders to the names of what was found.
func causes(report *verify.Report) map[string][]verify.Cause {
	all := map[string][]verify.Cause{}
	for _, d := range report.Differences {
		for _, f := range d.Findings {
			all[d.OrderID] = append(all[d.OrderID], f.Cause)
		}
	}
	return all
}

func TestCausesAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	orders := []string{"missing", "extra", "behind", "ahead", "total", "digest", "parked", "blocked", "letter", "good", "removed"}
	w.log.Append(2, created("removed"))
	for _, o := range orders[:10] {
		w.log.Append(0, created(o))
		w.log.Append(0, amended(o, 2))
	}
	w.log.Append(2, amended("removed", 2))
	w.log.Append(0, amended("parked", 4))
	w.log.Append(0, event("blocked", 3, "OrderShipped.v1", `{"carrier":"x","tracking_number":"y"}`))
	w.log.Append(0, event("letter", 3, "OrderShipped.v1", `{"carrier":"x","tracking_number":"y"}`))
	w.projectAll()
	w.equal(w.verify())

	w.exec(`DELETE FROM order_rows WHERE order_id = 'missing'`)
	w.exec(`UPDATE order_rows SET order_id = 'nobody' WHERE order_id = 'extra'`)
	shorten := `ledger_versions = ledger_versions[:1], ledger_event_ids = ledger_event_ids[:1], ledger_types = ledger_types[:1], ledger_states = ledger_states[:1],
		ledger_times = ledger_times[:1], ledger_digests = ledger_digests[:1], ledger_partitions = ledger_partitions[:1], ledger_offsets = ledger_offsets[:1]`
	w.exec(`UPDATE order_rows SET version = 1, ` + shorten + ` WHERE order_id = 'behind'`)
	w.exec(`UPDATE order_rows SET version = 3, ledger_versions = ledger_versions || 3::bigint, ledger_event_ids = ledger_event_ids || 'e'::text,
		ledger_types = ledger_types || 't'::text, ledger_states = ledger_states || 's'::text, ledger_times = ledger_times || now(),
		ledger_digests = ledger_digests || '\x00'::bytea, ledger_partitions = ledger_partitions || 0, ledger_offsets = ledger_offsets || 999::bigint
		WHERE order_id = 'ahead'`)
	w.exec(`UPDATE order_rows SET total_minor = 7 WHERE order_id = 'total'`)
	w.exec(`UPDATE order_rows SET ledger_digests[1] = '\x00' WHERE order_id = 'digest'`)
	w.exec(`DELETE FROM parked_events WHERE order_id = 'parked'`)
	w.exec(`UPDATE order_rows SET projection_status = 'ok', waiting_for_version = NULL WHERE order_id IN ('parked', 'blocked')`)
	w.exec(`DELETE FROM dead_letters WHERE order_id = 'letter'`)
	w.exec(`UPDATE projection_watermarks SET applied = applied + 1 WHERE kafka_partition = 0`)
	w.log.Truncate(2, 1)

	report := w.verify()
	want := map[string][]verify.Cause{
		"missing": {verify.MissingRow}, "extra": {verify.MissingRow}, "nobody": {verify.UnexpectedRow},
		"behind": {verify.Behind}, "ahead": {verify.Ahead}, "total": {verify.Column}, "digest": {verify.Ledger},
		"parked": {verify.Parked, verify.Parked}, "blocked": {verify.Blocked}, "letter": {verify.DeadLetter}, "removed": {verify.Removed},
	}
	got := causes(report)
	for order, expected := range want {
		if !slices.Equal(got[order], expected) {
			t.Errorf("%s: causes %v, want %v", order, got[order], expected)
		}
		delete(got, order)
	}
	if len(got) > 0 {
		t.Errorf("and %v", got)
	}
	if report.Differing != 10 || report.Unverifiable != 1 || report.Same() || len(report.Accounts) != 2 {
		t.Errorf("%d differ, %d are unverifiable, counts %v", report.Differing, report.Unverifiable, report.Accounts)
	}

	w.config.Selection.Orders = []string{"total", "good", "none"}
	report = w.verify()
	if report.Orders != 2 || report.Equal != 1 || len(report.Accounts) != 0 || len(report.Differences) != 1 {
		t.Errorf("%+v", report)
	}
	if f := report.Differences[0].Findings[0]; f.Column != "total_minor" || f.Expected != "200" || f.Found != "7" {
		t.Errorf("%+v", f)
	}
}

func TestWhatAMemberIsWorkingOnIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic(50)
	w.projectAll()
	w.exec(`UPDATE order_rows SET total_minor = total_minor + 1`)
	w.config.Rechecks = []time.Duration{time.Millisecond, time.Millisecond}
	reads := 0
	w.config.DB = &hooked{w.pool, func() {
		if reads++; reads == 4 { // prepare, catch up, compare, and before the second look
			w.exec(`UPDATE order_rows SET total_minor = total_minor - 1`)
			w.log.Append(0, created("later"))
			w.project(0, 1<<62)
		}
	}}
	w.equal(w.verify())
	if reads < 4 {
		t.Errorf("%d snapshots", reads)
	}
}

func TestAnEqualDeliveryInAnotherPartitionIsNoDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.log.Append(0, created("o"))
	w.log.Append(1, created("o"))
	w.log.Append(1, amended("o", 2))
	w.log.Append(0, amended("o", 2))
	w.project(1, 1<<62)
	w.project(0, 1<<62) // the fold begins with partition 0
	report := w.verify()
	if len(report.Differences) > 0 {
		t.Error(report.Differences)
	}
}

func TestSharedEventIDsAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.log.Append(0, eventWithID("a", "same", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"10.00","currency":"EUR"}}`))
	w.log.Append(0, eventWithID("a", "same", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"10.00","currency":"EUR"}}`))
	w.log.Append(1, eventWithID("b", "same", 5, "OrderAmended.v1", `{"total":{"amount":"10.00","currency":"EUR"}}`))
	w.log.Append(1, created("c"))
	w.projectAll()
	w.config.EventIDs = true
	report := w.verify()
	w.equal(report)
	if len(report.EventIDs) != 1 || report.EventIDs[0].EventID != "same" || !slices.Equal(report.EventIDs[0].Orders, []string{"a", "b"}) {
		t.Errorf("%v", report.EventIDs)
	}
}
