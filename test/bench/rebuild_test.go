package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// BenchmarkRebuild projects the topic for the first time, and rebuilds the tables while that member
// lives on and a reader asks for orders every other millisecond. "x-first" is the rate of the rebuild's filling
// over that of the first-time projection; "read-ms" is how long the reader waited at most, "locked-ms" how long the exchange kept
// readers out.
func BenchmarkRebuild(b *testing.B) {
	w := newWorld(b, events()/5)
	for i := range b.N {
		dsn := w.database(fmt.Sprintf("rebuild_%d", i))
		w.rewind()
		member := w.run(dsn)
		first := w.rate(member, "orderprojector_events_total")

		longest, reads, stop := w.reader(dsn)
		p := testenv.StartProcess(b, testenv.ProcessConfig{
			Args: []string{"rebuild", "-o", "json", "--comment", "benchmark"},
			Env: []string{
				"KAFKA_BOOTSTRAP_SERVERS=" + strings.Join(w.brokers, ","), "DATABASE_URL=" + dsn, "ORDERPROJECTOR_WRITERS=" + strconv.Itoa(writers),
				"ORDERPROJECTOR_LOG_LEVEL=debug",
			},
		})
		memory := peak(p)
		stop()
		if code := p.Wait(time.Second); code != 0 {
			b.Fatalf("exit code %d\n%s%s", code, p.Stdout(), p.Stderr())
		}
		var report struct {
			Rate    float64 `json:"records_per_second"`
			Seconds float64 `json:"seconds"`
			Filling float64 `json:"filling_seconds"`
			Differ  int64   `json:"differing_orders"`
			Writers float64 `json:"writers_waited_seconds"`
			Readers float64 `json:"readers_waited_seconds"`
		}
		if err := json.Unmarshal([]byte(p.Stdout()), &report); err != nil {
			b.Fatalf("%v\n%s", err, p.Stdout())
		}
		b.Logf("%d records: filled in %.1f s, all done in %.1f s; %d reads meanwhile\n%s", w.records, report.Filling, report.Seconds, reads.Load(), p.Stderr())
		if code := member.Stop(15 * time.Second); code != 0 {
			b.Fatalf("exit code %d\n%s", code, member.Stderr())
		}
		b.ReportMetric(report.Rate, "events/s")
		b.ReportMetric(first, "first/s")
		b.ReportMetric(report.Rate/first, "x-first")
		b.ReportMetric(report.Seconds, "total-s")
		b.ReportMetric(float64(longest.Load())/1e6, "read-ms")
		b.ReportMetric(report.Readers*1e3, "locked-ms")
		b.ReportMetric(report.Writers*1e3, "members-ms")
		b.ReportMetric(float64(memory)/(1<<20), "MiB")
	}
}

// peak watches a process until it ends, and returns its largest resident memory.
func peak(p *testenv.Process) (memory int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return memory
		case <-tick.C:
			if now, running := p.TryPeakMemory(); running {
				memory = max(memory, now)
			}
		}
	}
}

// reader asks for some orders all the time, and notes in nanoseconds how long an answer took at most.
func (w *world) reader(dsn string) (longest, reads *atomic.Int64, stop func()) {
	longest, reads = new(atomic.Int64), new(atomic.Int64)
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		w.b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = conn.Close(context.Background()) }()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			var n int
			err := conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT order_id, state, version FROM orders ORDER BY order_id LIMIT 20) AS o`).Scan(&n)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil || n != 20:
				w.b.Errorf("reading orders: %d, %v", n, err)
				return
			}
			reads.Add(1)
			longest.Store(max(longest.Load(), time.Since(began).Nanoseconds()))
		}
	}()
	return longest, reads, func() { cancel(); <-done }
}
