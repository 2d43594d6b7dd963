package bench

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// recorder projects in memory and keeps what would be written, batch by batch.
type recorder struct {
	*projectiontest.Memory
	writes [][]*projection.RowWrite
}

func (r *recorder) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	return r.Memory.InTx(ctx, func(ctx context.Context, tx projection.Tx) error {
		return work(ctx, &recordingTx{tx, r})
	})
}

type recordingTx struct {
	projection.Tx
	recorder *recorder
}

func (t *recordingTx) Write(ctx context.Context, writes []*projection.RowWrite) ([]bool, error) {
	t.recorder.writes = append(t.recorder.writes, writes)
	return t.Tx.Write(ctx, writes)
}

// recorded returns, per partition, the writes that projecting these logs takes.
func (w *world) recorded(logs [][]projection.Record, batchRecords int) [][][]*projection.RowWrite {
	all := make([][][]*projection.RowWrite, len(logs))
	for p, log := range logs {
		r := &recorder{Memory: projectiontest.NewMemory()}
		projector, err := projection.NewProjector(projection.ProjectorConfig{
			Group: "bench", Store: r, Older: noRecords{}, CacheBytes: 1 << 40, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			w.b.Fatal(err)
		}
		h, _, err := projector.Assign(w.b.Context(), projection.Assignment{
			Group: "bench", TopicPartition: log[0].TopicPartition, Committed: projection.NoOffset,
		})
		if err != nil {
			w.b.Fatal(err)
		}
		for len(log) > 0 {
			n := min(batchRecords, len(log))
			if err := h.Handle(w.b.Context(), log[:n]); err != nil {
				w.b.Fatal(err)
			}
			log = log[n:]
		}
		all[p] = r.writes
	}
	return all
}

type noRecords struct{}

func (noRecords) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return nil
}

// ceiling is the rate, in records per second, at which the same rows go into the same
// tables by the program's own statements and nothing else: no broker, no decoding, no
// deciding, no watermark.
func (w *world) ceiling(writes [][][]*projection.RowWrite, dsn string) float64 {
	store := pgstore.New(w.pool(dsn, writers))
	began := time.Now()
	var wg sync.WaitGroup
	for _, batches := range writes {
		wg.Go(func() {
			for _, batch := range batches {
				err := store.InTx(w.b.Context(), func(ctx context.Context, tx projection.Tx) error {
					_, err := tx.Write(ctx, batch)
					return err
				})
				if err != nil {
					w.b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(w.records) / time.Since(began).Seconds()
}
