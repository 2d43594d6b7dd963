package pgstore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// Watermarks reads the watermarks of a group in one incarnation of a topic, by partition.
func (r *Reader) Watermarks(ctx context.Context, group, topic string, id projection.TopicID) (map[int32]projection.Watermark, error) {
	marks := map[int32]projection.Watermark{}
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT kafka_partition, next_offset, generation FROM projection_watermarks
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3`, group, topic, uuid.UUID(id))
		if err != nil {
			return err
		}
		var partition int32
		var mark projection.Watermark
		_, err = pgx.ForEachRow(rows, []any{&partition, &mark.NextOffset, &mark.Generation}, func() error {
			marks[partition] = mark
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading projection_watermarks: %w", err)
	}
	return marks, nil
}

var _ projection.LetterFinder = (*Reader)(nil)

// KnownLetters implements projection.LetterFinder.
func (r *Reader) KnownLetters(ctx context.Context, group string, log projection.TopicPartition, refs []projection.LetterRef) ([]bool, error) {
	var offsets, versions []int64
	var orders, events []string
	for _, ref := range refs {
		offsets, versions = append(offsets, ref.Offset), append(versions, ref.Version)
		orders, events = append(orders, storable(ref.OrderID)), append(events, storable(ref.EventID))
	}
	known := make([]bool, len(refs))
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT asked.n FROM unnest($5::bigint[], $6::text[], $7::bigint[], $8::text[]) WITH ORDINALITY AS asked (kafka_offset, order_id, version, event_id, n)
			WHERE EXISTS (SELECT FROM dead_letters l WHERE l.consumer_group = $1 AND l.kafka_topic = $2 AND l.topic_id = $3
				AND l.kafka_partition = $4 AND l.kafka_offset = asked.kafka_offset)
			OR asked.event_id <> '' AND EXISTS (SELECT FROM dead_letters l WHERE l.order_id = asked.order_id AND l.version = asked.version
				AND l.event_id = asked.event_id AND l.consumer_group = $1)`,
			group, log.Topic, uuid.UUID(log.TopicID), log.Partition, offsets, orders, versions, events)
		if err != nil {
			return err
		}
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&n}, func() error {
			known[n-1] = true
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading dead_letters: %w", err)
	}
	return known, nil
}

// Audit writes one operator action that is no single transaction to the audit log.
func (s *Store) Audit(ctx context.Context, entry projection.AuditEntry) error {
	return s.InOperatorTx(ctx, func(ctx context.Context, tx projection.OperatorTx) error { return tx.Audit(ctx, entry) })
}
