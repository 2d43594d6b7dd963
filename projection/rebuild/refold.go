package rebuild

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// refoldDecided folds the orders anew about which operators decided something, or took it back, since the shadow
// began: it may have folded them before.
func (r *run) refoldDecided(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, r.sql(`SELECT d.order_id, array_agg(d.kafka_partition), array_agg(d.kafka_offset)
		FROM live.operator_decisions d LEFT JOIN shadow.decisions_seen s ON s.id = d.id
		WHERE s.id IS NULL OR s.undone <> (d.undone_at IS NOT NULL)
		GROUP BY d.order_id`))
	if err != nil {
		return nil, fmt.Errorf("reading operators' decisions: %w", err)
	}
	offsets := map[string]map[int32][]int64{}
	add := func(order string, partitions []*int32, at []*int64) {
		if offsets[order] == nil {
			offsets[order] = map[int32][]int64{}
		}
		for i := range partitions {
			if partitions[i] != nil && at[i] != nil && *partitions[i] >= 0 && *at[i] >= 0 {
				offsets[order][*partitions[i]] = append(offsets[order][*partitions[i]], *at[i])
			}
		}
	}
	var order string
	var partitions []*int32
	var at []*int64
	if _, err := pgx.ForEachRow(rows, []any{&order, &partitions, &at}, func() error { add(order, partitions, at); return nil }); err != nil {
		return nil, fmt.Errorf("reading operators' decisions: %w", err)
	}
	orders := slices.Sorted(maps.Keys(offsets))
	if len(orders) == 0 {
		return nil, nil
	}
	// Whatever either set knows of an order says where its records are.
	rows, err = tx.Query(ctx, r.sql(`SELECT order_id, array_agg(kafka_partition), array_agg(kafka_offset) FROM (
			SELECT o.order_id, e.kafka_partition, e.kafka_offset
			FROM (SELECT * FROM live.order_rows UNION ALL SELECT * FROM shadow.order_rows) AS o
			CROSS JOIN LATERAL unnest(o.ledger_partitions, o.ledger_offsets) AS e (kafka_partition, kafka_offset) WHERE o.order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.order_ledger_archive WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.order_ledger_archive WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.parked_events WHERE order_id = ANY ($1::text[]) AND topic_id = $2
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.parked_events WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.dead_letters WHERE order_id = ANY ($1::text[]) AND topic_id = $2
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.dead_letters WHERE order_id = ANY ($1::text[])
		) AS e GROUP BY order_id`), orders, r.id)
	if err != nil {
		return nil, fmt.Errorf("looking for the records of decided orders: %w", err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&order, &partitions, &at}, func() error { add(order, partitions, at); return nil }); err != nil {
		return nil, fmt.Errorf("looking for the records of decided orders: %w", err)
	}
	log := projection.TopicPartition{Topic: r.topic, TopicID: projection.TopicID(r.id)}
	for _, order := range orders {
		if err := r.refold.Refold(ctx, order, log, offsets[order]); err != nil {
			return nil, err
		}
	}
	return orders, nil
}
