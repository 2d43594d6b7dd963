package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// HeldView is a row of the relation held_records without the record's bytes. Its JSON names are the column names.
type HeldView struct {
	ID             int64     `json:"id"`
	OrderID        *string   `json:"order_id"`
	Version        *int64    `json:"version"` // that the record claims
	EventID        *string   `json:"event_id"`
	Type           *string   `json:"type"`
	KafkaTopic     string    `json:"kafka_topic"`
	KafkaPartition int32     `json:"kafka_partition"`
	KafkaOffset    int64     `json:"kafka_offset"`
	Class          string    `json:"class"` // of the latest failure; queued when the record was not tried
	Cause          string    `json:"cause"` // of the latest failure
	Failures       int32     `json:"failures"`
	Counted        int32     `json:"counted"` // failures that bring the record's letter nearer
	HeldAt         time.Time `json:"held_at"`
	FailedAt       time.Time `json:"failed_at"`
	DueAt          time.Time `json:"due_at"`  // the next attempt, once the record is the head of its queue
	Overdue        bool      `json:"overdue"` // held for longer than the deadline
	Before         int64     `json:"before"`  // records before it in its queue; 0 for the head
	RetriedBy      *string   `json:"retried_by"`
	Bytes          int64     `json:"value_bytes"`
}

// Head reports whether the record is tried: it is the first of its queue.
func (h *HeldView) Head() bool { return h.Before == 0 }

func (h *HeldView) utc() {
	h.HeldAt, h.FailedAt, h.DueAt = h.HeldAt.UTC(), h.FailedAt.UTC(), h.DueAt.UTC()
}

// heldBefore is the part of the queue of held record h that comes before it. A record that names no order is a queue of its own.
const heldBefore = ` FROM held_records e
	WHERE h.order_id <> '' AND e.consumer_group = h.consumer_group AND e.order_id = h.order_id AND e.kafka_topic = h.kafka_topic
	  AND e.topic_id = h.topic_id AND e.kafka_partition = h.kafka_partition AND e.kafka_offset < h.kafka_offset `

const heldOverdue = `(h.held_at + d.held_record < now())`

// heldQuery selects those of HeldView that are the group's, $1.
const heldQuery = `SELECT h.id, nullif(h.order_id, '') AS order_id, h.version, nullif(h.event_id, '') AS event_id, h.type,
	h.kafka_topic, h.kafka_partition, h.kafka_offset, h.class, h.cause, h.failures, h.counted, h.held_at, h.failed_at, h.due_at,
	` + heldOverdue + ` AS overdue, (SELECT count(*)` + heldBefore + `) AS before, h.retried_by, coalesce(octet_length(h.value), 0)::bigint AS bytes
	FROM held_records h CROSS JOIN operator_deadlines d WHERE h.consumer_group = $1 `

// HeldFilter selects held records; empty fields select all.
type HeldFilter struct {
	Order   string
	Topic   string
	Heads   bool // only heads of their queues
	Overdue bool
	After   int64 // only records of a higher ID
	Limit   int
}

// Held lists the group's held records by ID. more says that there are others behind the last one.
func (r *Reader) Held(ctx context.Context, group string, f HeldFilter) (held []HeldView, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		held, err = query[HeldView](ctx, tx, "held_records", heldQuery+`
			AND h.id > $2 AND ($3 = '' OR h.order_id = $3) AND ($4 = '' OR h.kafka_topic = $4)
			AND (NOT $5 OR NOT EXISTS (SELECT`+heldBefore+`)) AND (NOT $6 OR `+heldOverdue+`)
			ORDER BY h.id LIMIT $7`, group, f.After, f.Order, f.Topic, f.Heads, f.Overdue, f.Limit+1)
		return err
	})
	if more = len(held) > f.Limit; more {
		held = held[:f.Limit]
	}
	for i := range held {
		held[i].utc()
	}
	return held, more, err
}

// HeldRecord is a held record with its bytes.
type HeldRecord struct {
	HeldView
	Record projection.Record
}

// HeldRecord reads one held record. The error is ErrNotFound when the group has none of that ID.
func (r *Reader) HeldRecord(ctx context.Context, group string, id int64) (HeldRecord, error) {
	var held HeldRecord
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		views, err := query[HeldView](ctx, tx, "held_records", heldQuery+` AND h.id = $2`, group, id)
		if err != nil {
			return err
		}
		if len(views) == 0 {
			return ErrNotFound
		}
		held.HeldView = views[0]
		held.utc()
		stored, err := scanHeld(tx.QueryRow(ctx, sqlHeldRead, group, id))
		if err == nil && stored != nil {
			held.Record = stored.Record
		}
		return err
	})
	return held, err
}

// HeldStats is what metrics and status show of a group's held records.
type HeldStats struct {
	Records       int64   `json:"records"`
	OldestSeconds float64 `json:"oldest_seconds"` // 0 when there is none
	Overdue       int64   `json:"overdue"`
}

// HeldStats counts the group's held records.
func (r *Reader) HeldStats(ctx context.Context, group string) (stats HeldStats, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		stats, err = readHeldStats(ctx, tx, group)
		return err
	})
	return stats, err
}

func readHeldStats(ctx context.Context, tx pgx.Tx, group string) (HeldStats, error) {
	all, err := query[HeldStats](ctx, tx, "held_records", `
		SELECT count(*) AS records, coalesce(extract(epoch FROM clock_timestamp() - min(h.held_at)), 0)::float8 AS oldest_seconds,
		       count(*) FILTER (WHERE `+heldOverdue+`) AS overdue
		FROM held_records h CROSS JOIN operator_deadlines d WHERE h.consumer_group = $1`, group)
	if err != nil {
		return HeldStats{}, err
	}
	return all[0], nil
}
