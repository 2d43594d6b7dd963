package pgstore

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// TimelineKind says where an entry of a timeline is kept.
type TimelineKind string

// The kinds of entries.
const (
	TimelineApplied    TimelineKind = "applied"     // in the ledger
	TimelineSkipped    TimelineKind = "skipped"     // in the ledger, by an operator's decision
	TimelineParked     TimelineKind = "parked"      // waits for a version before it
	TimelineDeadLetter TimelineKind = "dead_letter" // open, waits for an operator
	TimelineHeld       TimelineKind = "held"        // could not be made durable; tried again
)

// TimelineEntry is one thing that happened, or could not happen yet, to an
// order. Fields that an entry does not have are nil or empty.
type TimelineEntry struct {
	Kind           TimelineKind `json:"kind"`
	Version        *int64       `json:"version"`
	From           string       `json:"from_state,omitempty"` // only ledger entries; empty before the first
	To             string       `json:"state,omitempty"`
	EventID        *string      `json:"event_id"`
	Type           string       `json:"type"`
	OccurredAt     *time.Time   `json:"occurred_at"`
	Digest         string       `json:"digest,omitempty"` // hex
	KafkaPartition int32        `json:"kafka_partition"`
	KafkaOffset    int64        `json:"kafka_offset"`
	DeadLetterID   *int64       `json:"dead_letter_id,omitempty"`
	HeldRecordID   *int64       `json:"held_record_id,omitempty"`
	Blocks         bool         `json:"blocks,omitempty"`
	Status         string       `json:"status,omitempty"` // of the dead letter
	Reason         string       `json:"reason,omitempty"`
	Detail         string       `json:"detail,omitempty"`
	Since          *time.Time   `json:"since,omitempty"` // parked, held or first failed
}

// Timeline is an order's whole story as far as it is kept.
type Timeline struct {
	OrderID           string          `json:"order_id"`
	State             string          `json:"state"` // empty while nothing is applied
	Version           int64           `json:"version"`
	ProjectionStatus  string          `json:"projection_status"` // empty where there is no row
	WaitingForVersion *int64          `json:"waiting_for_version"`
	Overdue           bool            `json:"overdue"` // held up for longer than the deadline
	Entries           []TimelineEntry `json:"entries"`
}

// Timeline reads the ledger of an order, its parked events, its open dead
// letters and its held records, by version; what has no version that could be read comes last.
// The error is ErrNotFound when there is nothing at all.
func (r *Reader) Timeline(ctx context.Context, orderID string) (Timeline, error) {
	timeline := Timeline{OrderID: orderID, Entries: []TimelineEntry{}}
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		answer, err := readOrder(ctx, tx, orderID)
		switch {
		case errors.Is(err, ErrNotFound): // letters may name it all the same
		case err != nil:
			return err
		case answer.Order != nil:
			o := answer.Order
			timeline.State, timeline.Version = o.State, o.Version
			timeline.ProjectionStatus, timeline.WaitingForVersion = o.ProjectionStatus, o.WaitingForVersion
			timeline.Overdue = o.Overdue
		default:
			timeline.ProjectionStatus, timeline.WaitingForVersion = answer.Waiting.ProjectionStatus, answer.Waiting.WaitingForVersion
			timeline.Overdue = answer.Waiting.Overdue
		}
		for _, read := range []func(context.Context, pgx.Tx, string) ([]TimelineEntry, error){readLedger, readParked, readLetters, readHeld} {
			entries, err := read(ctx, tx, orderID)
			if err != nil {
				return err
			}
			timeline.Entries = append(timeline.Entries, entries...)
		}
		if len(timeline.Entries) == 0 && timeline.ProjectionStatus == "" {
			return ErrNotFound
		}
		return nil
	})
	slices.SortStableFunc(timeline.Entries, func(a, b TimelineEntry) int { return compareVersions(a.Version, b.Version) })
	return timeline, err
}

func compareVersions(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	case *a < *b:
		return -1
	case *a > *b:
		return 1
	}
	return 0
}

func readLedger(ctx context.Context, tx pgx.Tx, orderID string) ([]TimelineEntry, error) {
	type row struct {
		Version        int64
		EventID        *string
		Type           string
		OccurredAt     *time.Time
		Digest         []byte
		State          string
		KafkaPartition int32
		KafkaOffset    int64
	}
	rows, err := query[row](ctx, tx, "order_events",
		`SELECT version, event_id, type, occurred_at, digest, state, kafka_partition, kafka_offset
		 FROM order_events WHERE order_id = $1 ORDER BY version`, orderID)
	if err != nil {
		return nil, err
	}
	entries := make([]TimelineEntry, len(rows))
	from := ""
	for i, l := range rows {
		e := TimelineEntry{
			Kind: TimelineApplied, Version: &l.Version, From: from, To: l.State, EventID: l.EventID, Type: l.Type,
			OccurredAt: utc(l.OccurredAt), Digest: hex.EncodeToString(l.Digest),
			KafkaPartition: l.KafkaPartition, KafkaOffset: l.KafkaOffset,
		}
		if l.EventID == nil {
			e.Kind = TimelineSkipped
		}
		entries[i], from = e, l.State
	}
	return entries, nil
}

func readParked(ctx context.Context, tx pgx.Tx, orderID string) ([]TimelineEntry, error) {
	type row struct {
		Version        int64
		EventID        string
		Type           string
		OccurredAt     time.Time
		Digest         []byte
		KafkaPartition int32
		KafkaOffset    int64
		ParkedAt       time.Time
	}
	rows, err := query[row](ctx, tx, "parked_events",
		`SELECT version, event_id, type, occurred_at, digest, kafka_partition, kafka_offset, parked_at
		 FROM parked_events WHERE order_id = $1 ORDER BY version, kafka_partition, kafka_offset`, orderID)
	if err != nil {
		return nil, err
	}
	entries := make([]TimelineEntry, len(rows))
	for i, p := range rows {
		entries[i] = TimelineEntry{
			Kind: TimelineParked, Version: &p.Version, EventID: &p.EventID, Type: p.Type, OccurredAt: utc(&p.OccurredAt),
			Digest: hex.EncodeToString(p.Digest), KafkaPartition: p.KafkaPartition, KafkaOffset: p.KafkaOffset, Since: utc(&p.ParkedAt),
		}
	}
	return entries, nil
}

func readLetters(ctx context.Context, tx pgx.Tx, orderID string) ([]TimelineEntry, error) {
	type row struct {
		ID             int64
		Version        *int64
		EventID        *string
		Reason         string
		Detail         string
		Blocks         bool
		Status         string
		KafkaPartition int32
		KafkaOffset    int64
		FirstFailedAt  time.Time
	}
	rows, err := query[row](ctx, tx, "dead_letters",
		`SELECT id, version, event_id, reason, detail, blocks, status, kafka_partition, kafka_offset, first_failed_at
		 FROM dead_letters WHERE order_id = $1 AND status IN ('open', 'exhausted')
		   -- what a consumer beside the projector refuses says nothing of the order
		   AND consumer_group NOT IN (SELECT consumer_group FROM consumer_claims)
		 ORDER BY version, id`, orderID)
	if err != nil {
		return nil, err
	}
	entries := make([]TimelineEntry, len(rows))
	for i, l := range rows {
		entries[i] = TimelineEntry{
			Kind: TimelineDeadLetter, Version: l.Version, EventID: l.EventID, DeadLetterID: &l.ID, Blocks: l.Blocks, Status: l.Status,
			Reason: l.Reason, Detail: l.Detail,
			KafkaPartition: l.KafkaPartition, KafkaOffset: l.KafkaOffset, Since: utc(&l.FirstFailedAt),
		}
	}
	return entries, nil
}

// timelineHeld is how many held records a timeline shows.
const timelineHeld = 1000

func readHeld(ctx context.Context, tx pgx.Tx, orderID string) ([]TimelineEntry, error) {
	type row struct {
		ID             int64
		Version        *int64
		EventID        *string
		Type           string
		Class          string
		Cause          string
		KafkaPartition int32
		KafkaOffset    int64
		HeldAt         time.Time
	}
	rows, err := query[row](ctx, tx, "held_records",
		`SELECT id, version, nullif(event_id, '') AS event_id, coalesce(type, '') AS type, class, cause, kafka_partition, kafka_offset, held_at
		 FROM held_records WHERE order_id = $1 AND projected ORDER BY version, kafka_partition, kafka_offset LIMIT $2`, orderID, timelineHeld)
	if err != nil {
		return nil, err
	}
	entries := make([]TimelineEntry, len(rows))
	for i, h := range rows {
		entries[i] = TimelineEntry{
			Kind: TimelineHeld, Version: h.Version, EventID: h.EventID, Type: h.Type, HeldRecordID: &h.ID, Reason: h.Class, Detail: h.Cause,
			KafkaPartition: h.KafkaPartition, KafkaOffset: h.KafkaOffset, Since: utc(&h.HeldAt),
		}
	}
	return entries, nil
}
