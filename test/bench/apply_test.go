package bench

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// BenchmarkApply measures decoding, deciding and writing without a broker, in this process: the one to profile.
func BenchmarkApply(b *testing.B) {
	server := testenv.StartPostgres(b, embedded.PostgresConfig{Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB"}})
	for i := range b.N {
		w := &world{b: b, server: server}
		pool := w.pool(w.database(fmt.Sprintf("apply_%d", i)), writers)
		projector, err := projection.NewProjector(projection.ProjectorConfig{
			Group: "bench", Store: pgstore.New(pool), Older: noRecords{}, Writers: writers,
			CacheBytes: 32 << 20, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		logs := make([][]projection.Record, writers)
		stream, err := generate.New(generate.Config{Seed: 1, Orders: events() / 10, InFlight: 20_000})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for r := range stream.All() {
			p := int32(r.Key[len(r.Key)-1] % writers)
			logs[p] = append(logs[p], projection.Record{
				TopicPartition: projection.TopicPartition{Topic: topic, TopicID: projection.TopicID{1}, Partition: p},
				Offset:         int64(len(logs[p])), Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...), Timestamp: time.Now(),
			})
			n++
		}
		own := processor(os.Getpid())
		began := time.Now()
		var wg sync.WaitGroup
		for _, log := range logs {
			wg.Go(func() {
				h, _, err := projector.Assign(b.Context(), projection.Assignment{Group: "bench", TopicPartition: log[0].TopicPartition, Committed: projection.NoOffset})
				if err != nil {
					b.Error(err)
					return
				}
				for len(log) > 0 {
					k := min(4096, len(log))
					if err := h.Handle(b.Context(), log[:k]); err != nil {
						b.Error(err)
						return
					}
					log = log[k:]
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(n)/time.Since(began).Seconds(), "events/s")
		b.ReportMetric(float64((processor(os.Getpid())-own).Microseconds())/float64(n), "own-cpu-µs/event")
		b.ReportMetric(float64(w.backends(pool).Microseconds())/float64(n), "database-cpu-µs/event")
	}
}

// backends is the processor time of the database's processes behind a pool.
func (w *world) backends(pool *pgxpool.Pool) time.Duration {
	rows, err := pool.Query(w.b.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		w.b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		w.b.Fatal(err)
	}
	var sum time.Duration
	for _, pid := range pids {
		sum += processor(pid)
	}
	return sum
}
