package bench

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
)

const (
	bareInsert = `INSERT INTO order_rows (order_id, version, revision, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
		created_at, updated_at, projected_at, last_event_id, projection_status, kafka_topic, kafka_partition, kafka_offset,
		ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests, ledger_partitions, ledger_offsets)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now(), $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
		ON CONFLICT DO NOTHING`
	bareUpdate = `UPDATE order_rows SET version = $4, revision = $5, state = $6, total_minor = $7, paid_minor = $8, refunded_minor = $9,
		updated_at = $10, projected_at = now(), last_event_id = $11, kafka_topic = $12, kafka_partition = $13, kafka_offset = $14,
		ledger_versions = ledger_versions || $15::bigint[], ledger_event_ids = ledger_event_ids || $16::text[], ledger_types = ledger_types || $17::text[],
		ledger_states = ledger_states || $18::text[], ledger_times = ledger_times || $19::timestamptz[], ledger_digests = ledger_digests || $20::bytea[],
		ledger_partitions = ledger_partitions || $21::integer[], ledger_offsets = ledger_offsets || $22::bigint[]
		WHERE order_id = $1 AND version = $2 AND revision = $3`
)

// bare is the rate, in records per second, at which the same rows go into the same tables by bare SQL: a prepared
// statement a row, with the driver's own types, all of a batch pipelined in one transaction, and nothing else.
func (w *world) bare(writes [][][]*projection.RowWrite, dsn string) float64 {
	pool := w.pool(dsn, writers)
	began := time.Now()
	var wg sync.WaitGroup
	for _, batches := range writes {
		wg.Go(func() {
			for _, batch := range batches {
				if err := bareBatch(w.b.Context(), pool, batch); err != nil {
					w.b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(w.records) / time.Since(began).Seconds()
}

func bareBatch(ctx context.Context, pool *pgxpool.Pool, writes []*projection.RowWrite) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var batch pgx.Batch
		for _, rw := range writes {
			r := rw.Row
			var (
				versions, offsets     []int64
				events, types, states []string
				times                 []time.Time
				digests               [][]byte
				partitions            []int32
			)
			for i := range rw.Appended {
				e := &rw.Appended[i]
				versions, offsets, partitions = append(versions, e.Version), append(offsets, e.Offset), append(partitions, e.Partition)
				events, types, states = append(events, e.EventID), append(types, e.Type), append(states, string(e.State))
				times, digests = append(times, e.OccurredAt), append(digests, e.Digest[:])
			}
			if rw.Insert {
				batch.Queue(bareInsert, r.OrderID, r.Version, r.Revision, r.CustomerID, string(r.State), r.Currency, r.TotalMinor, r.PaidMinor, r.RefundedMinor,
					r.CreatedAt, r.UpdatedAt, r.LastEventID, string(r.Status), r.Topic, r.Partition, r.Offset,
					versions, events, types, states, times, digests, partitions, offsets)
			} else {
				batch.Queue(bareUpdate, r.OrderID, rw.BaseVersion, rw.BaseRevision, r.Version, r.Revision, string(r.State), r.TotalMinor, r.PaidMinor, r.RefundedMinor,
					r.UpdatedAt, r.LastEventID, r.Topic, r.Partition, r.Offset,
					versions, events, types, states, times, digests, partitions, offsets)
			}
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}
