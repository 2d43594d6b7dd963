package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// GroupStatus is how a group stands, as far as the database knows.
type GroupStatus struct {
	Group       string           `json:"group"`
	Consumption ConsumptionView  `json:"consumption"`
	Members     []MemberState    `json:"members"` // that run
	Partitions  []PartitionState `json:"partitions"`
	Parked      struct {
		Events        int64   `json:"events"`
		OldestSeconds float64 `json:"oldest_seconds"`
	} `json:"parked"`
	Gaps struct {
		Orders  int64 `json:"orders"`
		Overdue int64 `json:"overdue"`
	} `json:"gaps"`
	Blocked     int64         `json:"blocked_orders"`
	Held        HeldStats     `json:"held_records"`
	HeldOldest  []HeldView    `json:"held_oldest"`  // the first of them
	DeadLetters []LetterCount `json:"dead_letters"` // of the statuses and reasons that there are
	Copies      struct {
		Pending       int64   `json:"pending"`
		OldestSeconds float64 `json:"oldest_seconds"`
	} `json:"dead_letter_copies"`
}

// ConsumptionView is a group's projection.Consumption in the form that is printed and audited.
type ConsumptionView struct {
	State   string       `json:"state"` // running, paused or breaker_open
	Pause   *PauseView   `json:"pause,omitempty"`
	Breaker *BreakerView `json:"breaker,omitempty"`
}

// PauseView says who paused the group.
type PauseView struct {
	By      string    `json:"by"`
	Since   time.Time `json:"since"`
	Comment string    `json:"comment"`
}

// BreakerView says why the breaker is open.
type BreakerView struct {
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
	Letters int64     `json:"letters"` // of that reason, or held records
	Orders  int64     `json:"orders"`  // of at least so many orders
	Events  int64     `json:"events"`  // among so many; 0 when the number of open held records opened it
}

func viewConsumption(c projection.Consumption) ConsumptionView {
	v := ConsumptionView{State: "running"}
	if p := c.Pause; p != nil {
		v.State = "paused"
		v.Pause = &PauseView{By: p.Actor, Since: p.Since, Comment: p.Comment}
	}
	if b := c.Breaker; b != nil {
		v.State = "breaker_open"
		v.Breaker = &BreakerView{Since: b.Since, Reason: b.Reason.String(), Letters: b.Letters, Orders: b.Orders, Events: b.Events}
	}
	return v
}

// PartitionState is a partition's watermark and what was decided below it.
type PartitionState struct {
	KafkaTopic     string    `json:"kafka_topic"`
	KafkaPartition int32     `json:"kafka_partition"`
	Watermark      int64     `json:"watermark"`
	Applied        int64     `json:"applied"`
	Duplicate      int64     `json:"duplicate"`
	Stale          int64     `json:"stale"`
	Conflict       int64     `json:"conflict"`
	Parked         int64     `json:"parked"`
	Invalid        int64     `json:"invalid"`
	Unsupported    int64     `json:"unsupported"`
	Illegal        int64     `json:"illegal"`
	Ignored        int64     `json:"ignored"`
	Held           int64     `json:"held"`
	LostOffsets    int64     `json:"lost_offsets"`
	UpdatedAt      time.Time `json:"updated_at"`
	AgeSeconds     float64   `json:"age_seconds"` // since the watermark advanced, by the database's clock
}

// TopicIDs returns the IDs under which records of a topic were ever projected.
func (r *Reader) TopicIDs(ctx context.Context, topic string) ([]projection.TopicID, error) {
	rows, err := r.pool.Query(ctx, `SELECT DISTINCT topic_id FROM projection_watermarks WHERE kafka_topic = $1`, topic)
	if err != nil {
		return nil, fmt.Errorf("reading the IDs of topic %s: %w", topic, err)
	}
	ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.TopicID, error) {
		id, err := pgx.RowTo[uuid.UUID](row)
		return projection.TopicID(id), err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the IDs of topic %s: %w", topic, err)
	}
	return ids, nil
}

// blockedOrders selects the IDs of blocked orders: those whose rows say so, those with held records, and those of the next version's
// letter that was a held record. Each part goes by an index that has nothing else in it.
const blockedOrders = `SELECT order_id FROM order_rows WHERE projection_status <> 'ok' AND projection_status = 'blocked'
	UNION SELECT order_id FROM held_records WHERE projected AND order_id <> ''
	UNION SELECT l.order_id FROM dead_letters l LEFT JOIN order_rows r USING (order_id)
	      WHERE l.was_held AND l.blocks AND l.status IN ('open', 'exhausted') AND l.version = coalesce(r.version, 0) + 1`

// Status reads how a group stands, all at the same moment.
func (r *Reader) Status(ctx context.Context, group string) (GroupStatus, error) {
	status := GroupStatus{Group: group}
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		consumption, err := readConsumption(ctx, tx, group, "")
		if err != nil {
			return err
		}
		status.Consumption = viewConsumption(consumption)
		// A recreated topic leaves the old one's watermarks behind: the newest counts.
		status.Partitions, err = query[PartitionState](ctx, tx, "projection_watermarks", `
			SELECT DISTINCT ON (kafka_topic, kafka_partition) kafka_topic, kafka_partition, next_offset AS watermark,
			       applied, duplicate, stale, conflict, parked, invalid, unsupported, illegal, ignored, held, lost_offsets, updated_at,
			       extract(epoch FROM clock_timestamp() - updated_at)::float8 AS age_seconds
			FROM projection_watermarks WHERE consumer_group = $1
			ORDER BY kafka_topic, kafka_partition, updated_at DESC`, group)
		if err != nil {
			return err
		}
		if status.Members, err = readMembers(ctx, tx, group); err != nil {
			return err
		}
		if status.HeldOldest, err = query[HeldView](ctx, tx, "held_records", heldQuery+` AND h.failures > 0 ORDER BY h.held_at, h.id LIMIT 3`, group); err != nil {
			return err
		}
		status.DeadLetters, err = query[LetterCount](ctx, tx, "dead_letters",
			`SELECT status, reason, count(*) AS letters FROM dead_letters WHERE consumer_group = $1 GROUP BY status, reason ORDER BY status, reason`, group)
		if err != nil {
			return err
		}
		if status.Held, err = readHeldStats(ctx, tx, group); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			SELECT parked.events, parked.oldest, copies.pending, copies.oldest,
			       (SELECT count(*) FROM (`+blockedOrders+`) AS b),
			       (SELECT count(*) FROM gaps), (SELECT count(*) FROM gaps WHERE overdue)
			FROM (SELECT count(*) AS events, coalesce(extract(epoch FROM clock_timestamp() - min(parked_at)), 0)::float8 AS oldest
			      FROM parked_events WHERE consumer_group = $1) AS parked,
			     (SELECT count(*) AS pending, coalesce(extract(epoch FROM clock_timestamp() - min(wanted_at)), 0)::float8 AS oldest
			      FROM letter_copies WHERE consumer_group = $1 AND copied_attempts < attempts) AS copies`, group).
			Scan(&status.Parked.Events, &status.Parked.OldestSeconds, &status.Copies.Pending, &status.Copies.OldestSeconds,
				&status.Blocked, &status.Gaps.Orders, &status.Gaps.Overdue)
	})
	return status, err
}
