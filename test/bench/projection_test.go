package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// BenchmarkProjection measures the whole program against what it replaces and
// against what the database can take.
func BenchmarkProjection(b *testing.B) {
	w := newWorld(b, events()/5)
	b.Logf("%d records in %d partitions, %d writers", w.records, partitions, writers)
	for range b.N {
		logs := w.read()
		writes := w.recorded(logs, kafkaio.DefaultMaxBatchRecords)
		logs = nil //nolint:wastedassign // a gigabyte that is not needed any more
		_ = logs
		bare := w.bare(writes, w.database(fmt.Sprintf("bare_%d", b.N)))
		statements := w.ceiling(writes, w.database(fmt.Sprintf("ceiling_%d", b.N)))
		writes = nil //nolint:wastedassign // another one
		_ = writes

		baseline := w.baseline(w.database(fmt.Sprintf("baseline_%d", b.N)), 6000, true)
		lazy := w.baseline(w.database(fmt.Sprintf("lazy_%d", b.N)), 6000, false)

		dsn := w.database(fmt.Sprintf("projection_%d", b.N))
		p := w.run(dsn)
		projected := w.rate(p, "orderprojector_events_total")
		memory := p.PeakMemory()
		batches := p.metric(b.Context(), "orderprojector_apply_duration_seconds_count")
		b.Logf("%.0f batches of %.0f records, %.3f s each", batches, float64(w.records)/batches,
			p.metric(b.Context(), "orderprojector_apply_duration_seconds_sum")/batches)
		b.Logf("%.1f µs of processor time per record", float64(processor(p.Pid()).Microseconds())/float64(w.records))
		if os.Getenv("BENCH_GODEBUG") != "" {
			b.Log(p.Stderr())
		}
		if code := p.Stop(15 * time.Second); code != 0 {
			b.Fatalf("exit code %d\n%s", code, p.Stderr())
		}

		before := w.touched(dsn)
		w.rewind()
		p = w.run(dsn)
		reread := w.rate(p, "orderprojector_reread_records_total")
		memory = max(memory, p.PeakMemory())
		p.Stop(15 * time.Second)
		touched := w.touched(dsn) - before

		b.ReportMetric(projected, "events/s")
		b.ReportMetric(bare, "bare-SQL/s")
		b.ReportMetric(statements, "own-statements/s")
		b.ReportMetric(baseline, "baseline/s")
		b.ReportMetric(lazy, "lazy-baseline/s")
		b.ReportMetric(reread, "reread/s")
		b.ReportMetric(projected/baseline, "x-baseline")
		b.ReportMetric(projected/lazy, "x-lazy-baseline")
		b.ReportMetric(projected/bare, "of-bare-SQL")
		b.ReportMetric(projected/statements, "of-own-statements")
		b.ReportMetric(reread/projected, "x-reread")
		b.ReportMetric(float64(memory)/(1<<20), "MiB")
		b.ReportMetric(float64(touched), "reread-rows-touched")
	}
}

// touched is how many rows PostgreSQL says were ever inserted, updated or deleted, other than the
// breaker's notes of how many events were counted by when, and members' heartbeats.
func (w *world) touched(dsn string) int64 {
	conn, err := pgx.Connect(w.b.Context(), dsn)
	if err != nil {
		w.b.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	const sql = `SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables WHERE relname NOT IN ('breaker_events', 'group_members')`
	var n, last int64
	// A backend reports its numbers at its end at the latest, a moment later.
	for stable := 0; stable < 10; {
		if err := conn.QueryRow(w.b.Context(), sql).Scan(&n); err != nil {
			w.b.Fatal(err)
		}
		if n == last {
			stable++
		} else {
			stable, last = 0, n
		}
		time.Sleep(200 * time.Millisecond)
	}
	return n
}

// rewind sets the group back to the start of the topic, as Kafka's tools do.
func (w *world) rewind() {
	admin := testenv.Admin(w.b, w.brokers)
	var offsets kadm.Offsets
	for p := range int32(partitions) {
		offsets.AddOffset(topic, p, 0, -1)
	}
	testenv.Await(w.b, 30*time.Second, func() (bool, string) {
		resp, err := admin.CommitOffsets(w.b.Context(), "orderprojector", offsets)
		if err == nil {
			err = resp.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
}

// BenchmarkHotOrder applies 20,000 events to one order, a few at a time, and compares the cost of the last
// ones with that of the first.
func BenchmarkHotOrder(b *testing.B) {
	server := testenv.StartPostgres(b, embedded.PostgresConfig{})
	const total, step = 20_000, 20
	for i := range b.N {
		w := &world{b: b, server: server}
		dsn := w.database(fmt.Sprintf("hot_%d", i))
		projector, err := projection.NewProjector(projection.ProjectorConfig{
			Group: "bench", Store: pgstore.New(w.pool(dsn, 2)), Older: noRecords{}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		tp := projection.TopicPartition{Topic: topic, TopicID: projection.TopicID{1}}
		h, _, err := projector.Assign(b.Context(), projection.Assignment{Group: "bench", TopicPartition: tp, Committed: projection.NoOffset})
		if err != nil {
			b.Fatal(err)
		}
		took := make([]time.Duration, 0, total/step)
		for n := 0; n < total; n += step {
			records := make([]projection.Record, step)
			for j := range records {
				v := n + j + 1
				typ, customer := "OrderAmended.v1", ""
				if v == 1 {
					typ, customer = "OrderCreated.v1", `"customer_id":"c",`
				}
				records[j] = projection.Record{TopicPartition: tp, Offset: int64(v - 1), Key: []byte("hot"), Timestamp: time.Now(), Value: fmt.Appendf(nil,
					`{"event_id":"e-%d","order_id":"hot","type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":{%s"total":{"amount":"%d.00","currency":"EUR"}}}`,
					v, typ, v, customer, v)}
			}
			began := time.Now()
			if err := h.Handle(b.Context(), records); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		first, last := median(took[10:len(took)/10+10]), median(took[len(took)*9/10:])
		b.ReportMetric(float64(first.Microseconds())/step, "first-µs/event")
		b.ReportMetric(float64(last.Microseconds())/step, "last-µs/event")
		b.ReportMetric(float64(last)/float64(first), "last/first")
	}
}

// median leaves out what a vacuum or a checkpoint does to a few.
func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}
