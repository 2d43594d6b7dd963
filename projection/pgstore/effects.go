package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

var (
	sqlClaimGroup   = statement("consumer_claim")
	sqlConsumedRead = statement("consumed_read")
	sqlConsumedAdd  = statement("consumed_add")
	sqlHeldAdd      = statement("held_add")
	sqlHeldTake     = statement("held_take")
	sqlHeldPostpone = statement("held_postpone")
)

var _ effects.Tx = (*tx)(nil)

// ClaimGroup implements effects.Tx.
func (t *tx) ClaimGroup(ctx context.Context, group, consumer string) (string, error) {
	if _, err := t.Exec(ctx, sqlClaimGroup, group, consumer); err != nil {
		return "", err
	}
	return consumerOf(ctx, t, group)
}

// ConsumerOf returns whose a consumer group is, "" when no consumer beside the projector has claimed it.
func (s *Store) ConsumerOf(ctx context.Context, group string) (string, error) {
	return consumerOf(ctx, s.pool, group)
}

func consumerOf(ctx context.Context, db rowQuerier, group string) (consumer string, err error) {
	err = db.QueryRow(ctx, `SELECT consumer FROM consumer_claims WHERE consumer_group = $1`, group).Scan(&consumer)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading consumer_claims: %w", err)
	}
	return consumer, nil
}

// Consumed implements effects.Tx.
func (t *tx) Consumed(ctx context.Context, consumer string, eventIDs []string) (map[string]effects.Consumed, error) {
	rows, err := t.Query(ctx, sqlConsumedRead, consumer, eventIDs)
	if err != nil {
		return nil, err
	}
	known := make(map[string]effects.Consumed)
	var c effects.Consumed
	var digest []byte
	var topicID uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&c.EventID, &c.OrderID, &digest, &c.Effect, &c.Topic, &topicID, &c.Partition, &c.Offset}, func() error {
		copy(c.Digest[:], digest)
		c.TopicID = projection.TopicID(topicID)
		known[c.EventID] = c
		return nil
	})
	return known, err
}

// AddConsumed implements effects.Tx.
func (t *tx) AddConsumed(ctx context.Context, consumer string, events []effects.Consumed) (int, error) {
	// One order for everybody: two transactions with the same IDs wait for each other, not in a circle.
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b effects.Consumed) int { return strings.Compare(a.EventID, b.EventID) })
	var (
		ids, orders, what, topics []string
		digests                   [][]byte
		topicIDs                  []uuid.UUID
		partitions                []int32
		offsets                   []int64
	)
	for i := range events {
		c := &events[i]
		ids, orders, what, digests = append(ids, c.EventID), append(orders, c.OrderID), append(what, c.Effect), append(digests, c.Digest[:])
		topics, topicIDs = append(topics, c.Topic), append(topicIDs, uuid.UUID(c.TopicID))
		partitions, offsets = append(partitions, c.Partition), append(offsets, c.Offset)
	}
	tag, err := t.Exec(ctx, sqlConsumedAdd, consumer, ids, digests, orders, what, topics, topicIDs, partitions, offsets)
	return int(tag.RowsAffected()), err
}

// Hold implements effects.Tx.
func (t *tx) Hold(ctx context.Context, group string, held []effects.Held) error {
	var ids, events, causes []string
	var recs records
	for i := range held {
		h := &held[i]
		ids, events, causes = append(ids, storable(h.OrderID)), append(events, storable(h.EventID)), append(causes, storable(h.Cause))
		recs.add(&h.Record)
	}
	_, err := t.Exec(ctx, sqlHeldAdd, group, recs.topics, recs.topicIDs, recs.partitions, recs.offsets, recs.times, recs.timeTypes,
		recs.keys, recs.values, recs.headers, ids, events, causes, recs.millis)
	return err
}

// TakeHeld implements effects.Tx.
func (t *tx) TakeHeld(ctx context.Context, group string, limit int) ([]effects.Held, error) {
	rows, err := t.Query(ctx, sqlHeldTake, group, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (effects.Held, error) {
		var h effects.Held
		into := append([]any{&h.ID}, recordColumns(&h.Record)...)
		err := row.Scan(append(into, &h.OrderID, &h.EventID, &h.Cause, &h.Failures, &h.Counted)...)
		return h, err
	})
}

// Postpone implements effects.Tx.
func (t *tx) Postpone(ctx context.Context, h effects.Held, cause string, pause time.Duration) (counted int, err error) {
	err = t.QueryRow(ctx, sqlHeldPostpone, h.ID, storable(cause), pause).Scan(&counted)
	return counted, err
}

// Release implements effects.Tx.
func (t *tx) Release(ctx context.Context, h effects.Held) error {
	_, err := t.Exec(ctx, `DELETE FROM held_records WHERE id = $1`, h.ID)
	return err
}
