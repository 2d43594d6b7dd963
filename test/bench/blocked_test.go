package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

const (
	blockedOrders = 10_000
	blockedRounds = 13 // of each kind, by turns: machines are noisy
)

// BenchmarkBlockedOrders measures the throughput of orders beside ten thousand blocked ones, each with its dead letter
// and two parked events, and without them. "of-unblocked" is the ratio of the two, the median of the rounds;
// "cpu-of-unblocked" is that of the events per processor time, which a busy machine disturbs less.
func BenchmarkBlockedOrders(b *testing.B) {
	server := testenv.StartPostgres(b, embedded.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	}})
	for i := range b.N {
		w := &world{b: b, server: server}
		free, blocked := w.projecting(fmt.Sprintf("free_%d", i)), w.projecting(fmt.Sprintf("blocked_%d", i))
		for _, log := range blockedLogs() {
			blocked.handle(log...)
		}
		if n := blocked.count(`SELECT count(*) FROM order_rows o WHERE projection_status = 'blocked'
			AND EXISTS (SELECT FROM dead_letters l WHERE l.order_id = o.order_id)
			AND (SELECT count(*) FROM parked_events p WHERE p.order_id = o.order_id) = 2`); n != blockedOrders {
			b.Fatalf("%d orders are blocked", n)
		}
		for _, p := range []*projecting{free, blocked} {
			p.exec(`VACUUM ANALYZE`) // neither is to pay for it by chance
		}
		var ratios, cpuRatios []float64
		var rates [2]float64
		for round := range blockedRounds {
			logs := trafficLogs(uint64(round), events()/5/40)
			pair := []*projecting{free, blocked}
			var took, used [2]time.Duration
			for _, which := range [][]int{{0, 1}, {1, 0}}[round%2] {
				before := processor(os.Getpid()) + w.backends(pair[which].pool)
				took[which] = pair[which].time(logs)
				used[which] = processor(os.Getpid()) + w.backends(pair[which].pool) - before
			}
			if round == 0 {
				continue // warms up
			}
			ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
			cpuRatios = append(cpuRatios, used[0].Seconds()/used[1].Seconds())
			for which := range took {
				rates[which] += float64(len(slices.Concat(logs...))) / took[which].Seconds() / (blockedRounds - 1)
			}
		}
		slices.Sort(ratios)
		slices.Sort(cpuRatios)
		b.Logf("%.0f events/s beside blocked orders, %.0f without; ratios %.2f, of processor time %.2f", rates[1], rates[0], ratios, cpuRatios)
		b.ReportMetric(rates[1], "events/s")
		b.ReportMetric(ratios[len(ratios)/2], "of-unblocked")
		b.ReportMetric(cpuRatios[len(cpuRatios)/2], "cpu-of-unblocked")
	}
}

// projecting is a database with a projector that works on it as a member does, sweep and all.
type projecting struct {
	b        *testing.B
	pool     *pgxpool.Pool
	handlers []projection.PartitionHandler
	next     []int64
}

func (w *world) projecting(name string) *projecting {
	p := &projecting{b: w.b, pool: w.pool(w.database(name), writers+1), next: make([]int64, writers)}
	projector, err := projection.NewProjector(projection.ProjectorConfig{
		Group: "bench", Store: pgstore.New(p.pool), Older: noRecords{}, Writers: writers,
		CacheBytes: 32 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.b.Fatal(err)
	}
	for partition := range int32(writers) {
		h, _, err := projector.Assign(w.b.Context(), projection.Assignment{
			Group: "bench", Committed: projection.NoOffset, TopicPartition: benchPartition(partition),
		})
		if err != nil {
			w.b.Fatal(err)
		}
		p.handlers = append(p.handlers, h)
	}
	ctx, stop := context.WithCancel(context.Background())
	var sweeping sync.WaitGroup
	sweeping.Go(func() { projector.Sweep(ctx) })
	w.b.Cleanup(func() { stop(); sweeping.Wait() })
	return p
}

func benchPartition(partition int32) projection.TopicPartition {
	return projection.TopicPartition{Topic: topic, TopicID: projection.TopicID{1}, Partition: partition}
}

// handle applies records to their partitions, in batches.
func (p *projecting) handle(records ...projection.Record) {
	logs := make([][]projection.Record, len(p.handlers))
	for _, r := range records {
		r.Offset = p.next[r.Partition]
		p.next[r.Partition]++
		logs[r.Partition] = append(logs[r.Partition], r)
	}
	var wg sync.WaitGroup
	for partition, log := range logs {
		wg.Go(func() {
			for batch := range slices.Chunk(log, 4096) {
				if err := p.handlers[partition].Handle(p.b.Context(), batch); err != nil {
					p.b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (p *projecting) time(logs [][]projection.Record) time.Duration {
	began := time.Now()
	p.handle(slices.Concat(logs...)...)
	return time.Since(began)
}

func (p *projecting) exec(sql string) {
	if _, err := p.pool.Exec(p.b.Context(), sql); err != nil {
		p.b.Fatal(err)
	}
}

func (p *projecting) count(sql string) (n int) {
	if err := p.pool.QueryRow(p.b.Context(), sql).Scan(&n); err != nil {
		p.b.Fatal(err)
	}
	return n
}

// blockedLogs are created orders whose next event is illegal, with two more behind it.
func blockedLogs() [][]projection.Record {
	logs := make([][]projection.Record, 4)
	for i := range blockedOrders {
		id := fmt.Sprintf("blocked-%05d", i)
		for v, event := range []struct{ typ, data string }{
			{"OrderCreated.v1", `{"customer_id":"c","total":{"amount":"5.00","currency":"EUR"}}`},
			{"OrderDelivered.v1", `{}`}, {"OrderPacked.v1", `{}`}, {"OrderShipped.v1", `{"carrier":"c","tracking_number":"t"}`},
		} {
			logs[v] = append(logs[v], projection.Record{
				TopicPartition: benchPartition(int32(i % writers)), Key: []byte(id), Timestamp: time.Now(),
				Value: fmt.Appendf(nil, `{"event_id":"%s-%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`,
					id, v+1, id, event.typ, v+1, event.data),
			})
		}
	}
	return logs
}

// trafficLogs is clean traffic of other orders.
func trafficLogs(seed uint64, orders int) [][]projection.Record {
	stream, err := generate.New(generate.Config{Seed: 1000 + seed, Orders: orders, InFlight: 20_000})
	if err != nil {
		panic(err) // the configuration is above
	}
	logs := make([][]projection.Record, writers)
	for r := range stream.All() {
		p := int32(r.Key[len(r.Key)-1] % writers)
		logs[p] = append(logs[p], projection.Record{
			TopicPartition: benchPartition(p), Key: slices.Clone(r.Key), Value: slices.Clone(r.Value), Timestamp: time.Now(),
		})
	}
	return logs
}
