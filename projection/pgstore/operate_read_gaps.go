package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// Gap is a row of the relation gaps: an order that waits for versions which
// have neither come nor been refused.
type Gap struct {
	OrderID      string    `json:"order_id"`
	FromVersion  int64     `json:"from_version"`
	ToVersion    int64     `json:"to_version"` // the version before the first parked one
	ParkedEvents int64     `json:"parked_events"`
	WaitingSince time.Time `json:"waiting_since"`
	DueAt        time.Time `json:"due_at"`
	Overdue      bool      `json:"overdue"`
	Owner        *string   `json:"owner"`
	Version      int64     `json:"version"`
	State        string    `json:"state"`
}

// GapFilter selects gaps; empty fields select all.
type GapFilter struct {
	Orders  []string
	Owner   string
	Overdue bool
	After   string // only orders behind this ID, in bytewise order
	Limit   int
}

// Gaps lists gaps by order ID. more says that there are others behind the last one.
func (r *Reader) Gaps(ctx context.Context, f GapFilter) (gaps []Gap, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		gaps, err = query[Gap](ctx, tx, "gaps", `SELECT order_id, from_version, to_version, parked_events, waiting_since, due_at, overdue, owner, version, state
			FROM gaps WHERE order_id > $1 AND ($2::text[] IS NULL OR order_id = ANY ($2)) AND ($3 = '' OR owner = $3) AND (NOT $4 OR overdue)
			ORDER BY order_id LIMIT $5`, f.After, f.Orders, f.Owner, f.Overdue, f.Limit+1)
		return err
	})
	if more = len(gaps) > f.Limit; more {
		gaps = gaps[:f.Limit]
	}
	for i := range gaps {
		gaps[i].WaitingSince, gaps[i].DueAt = gaps[i].WaitingSince.UTC(), gaps[i].DueAt.UTC()
	}
	return gaps, more, err
}

// DecisionFilter selects operators' decisions; empty fields select all.
type DecisionFilter struct {
	ID     int64
	Order  string
	Undone bool  // those that were undone, too
	Below  int64 // only decisions of a lower ID; 0 for all
	Limit  int
}

// OperatorDecisions lists operators' decisions, the newest first. more says that there are older ones behind the last.
func (r *Reader) OperatorDecisions(ctx context.Context, f DecisionFilter) (decisions []projection.OperatorDecision, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlDecisionsList, f.ID, f.Order, f.Undone, f.Below, f.Limit+1)
		if err != nil {
			return err
		}
		decisions, err = pgx.CollectRows(rows, scanDecision)
		return err
	})
	if more = len(decisions) > f.Limit; more {
		decisions = decisions[:f.Limit]
	}
	return decisions, more, err
}

// StoredWatermark is a partition's watermark as it is stored.
type StoredWatermark struct {
	NextOffset int64
	Lost       int64
	SkipTo     int64 // 0 when there is no skip that the group has still to commit
}

// WatermarkOf reads a partition's watermark without locking it. found is false when there is none.
func (r *Reader) WatermarkOf(ctx context.Context, key projection.WatermarkKey) (w StoredWatermark, found bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		marks, err := query[StoredWatermark](ctx, tx, "projection_watermarks", `SELECT next_offset, lost_offsets AS lost, coalesce(skipped_to, 0) AS skip_to
			FROM projection_watermarks WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4`, watermarkArgs(key)...)
		if err == nil && len(marks) == 1 {
			w, found = marks[0], true
		}
		return err
	})
	return w, found, err
}
