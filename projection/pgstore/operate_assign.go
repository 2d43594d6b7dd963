package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// Assignment says who takes care of a letter or a gap, and until when. Nil fields stay as they are; an empty owner is none.
type Assignment struct {
	Owner *string
	DueAt *time.Time
}

type assigned struct {
	Owner *string    `json:"owner"`
	DueAt *time.Time `json:"due_at"`
}

func (s *Store) inTx(ctx context.Context, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, s.txOptions, work)
}

// AssignLetter gives a letter an owner or a due time of its own. The error is
// a *projection.NotFoundError when the group has no such letter.
func (s *Store) AssignLetter(ctx context.Context, group string, id int64, a Assignment, by projection.By) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var before assigned
		err := tx.QueryRow(ctx, `SELECT owner, due_at FROM dead_letters WHERE consumer_group = $1 AND id = $2 FOR UPDATE`, group, id).
			Scan(&before.Owner, &before.DueAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return &projection.NotFoundError{What: fmt.Sprintf("dead letter %d of group %s", id, group)}
		}
		if err != nil {
			return fmt.Errorf("locking dead letter %d: %w", id, err)
		}
		after := a.applied(before)
		if _, err := tx.Exec(ctx, `UPDATE dead_letters SET owner = $2, due_at = $3 WHERE id = $1`, id, after.Owner, after.DueAt); err != nil {
			return fmt.Errorf("assigning dead letter %d: %w", id, err)
		}
		return audit(ctx, tx, projection.AuditEntry{
			Actor: by.Actor, Action: "dlq.assign", Target: fmt.Sprintf("dead_letter %d", id), Comment: by.Comment, Before: before, After: after,
		})
	})
}

func (a Assignment) applied(before assigned) assigned {
	after := before
	if a.Owner != nil {
		after.Owner = a.Owner
		if *a.Owner == "" {
			after.Owner = nil
		}
	}
	if a.DueAt != nil {
		after.DueAt = a.DueAt
	}
	return after
}

// AssignGap gives the gap of an order an owner or a due time of its own. The
// error is a *projection.NotFoundError when the order has no gap.
func (s *Store) AssignGap(ctx context.Context, orderID string, a Assignment, by projection.By) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var version int64
		err := tx.QueryRow(ctx, `SELECT version + 1 FROM order_rows WHERE order_id = $1 AND projection_status = 'waiting' FOR NO KEY UPDATE`, orderID).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			return &projection.NotFoundError{What: fmt.Sprintf("a gap of order %q", orderID)}
		}
		if err != nil {
			return fmt.Errorf("locking order %q: %w", orderID, err)
		}
		var before assigned
		err = tx.QueryRow(ctx, `SELECT owner, due_at FROM gap_owners WHERE order_id = $1 AND version = $2`, orderID, version).Scan(&before.Owner, &before.DueAt)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("reading the gap's owner: %w", err)
		}
		after := a.applied(before)
		if _, err := tx.Exec(ctx, `INSERT INTO gap_owners (order_id, version, owner, due_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (order_id) DO UPDATE SET version = excluded.version, owner = excluded.owner, due_at = excluded.due_at, assigned_at = now()`,
			orderID, version, after.Owner, after.DueAt); err != nil {
			return fmt.Errorf("assigning the gap: %w", err)
		}
		return audit(ctx, tx, projection.AuditEntry{
			Actor: by.Actor, Action: "gaps.assign", Target: "order " + orderID, Comment: by.Comment,
			Before: map[string]any{"version": version, "owner": before.Owner, "due_at": before.DueAt},
			After:  map[string]any{"version": version, "owner": after.Owner, "due_at": after.DueAt},
		})
	})
}

// purgeStep is how many letters are deleted in one transaction.
const purgeStep = 5000

// PurgeLetters deletes discarded letters that were closed before a time, with their
// records. Without execute it only counts them. It works in steps, each with a row of its own in the audit log.
func (s *Store) PurgeLetters(ctx context.Context, group string, before time.Time, execute bool, by projection.By) (purged int64, err error) {
	if !execute {
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM dead_letters WHERE consumer_group = $1 AND status = 'discarded' AND closed_at < $2`, group, before).Scan(&purged)
		if err != nil {
			return 0, fmt.Errorf("counting discarded letters: %w", err)
		}
		return purged, nil
	}
	for {
		var ids []int64
		err := s.inTx(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `DELETE FROM dead_letters WHERE id IN (
					SELECT id FROM dead_letters WHERE consumer_group = $1 AND status = 'discarded' AND closed_at < $2
					ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)
				RETURNING id`, group, before, purgeStep)
			if err != nil {
				return fmt.Errorf("deleting discarded letters: %w", err)
			}
			if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(ids) == 0 {
				return err
			}
			slices.Sort(ids)
			return audit(ctx, tx, projection.AuditEntry{
				Actor: by.Actor, Action: "dlq.purge", Target: "group " + group, Comment: by.Comment,
				Before: map[string]any{"letters": len(ids), "ids": ids}, After: map[string]any{"discarded_before": before},
			})
		})
		if err != nil {
			return purged, fmt.Errorf("purging dead letters: %w", err)
		}
		purged += int64(len(ids))
		if len(ids) < purgeStep {
			return purged, nil
		}
	}
}

// OffsetSkip is what skipping offsets of a partition did, or would do.
type OffsetSkip struct {
	From       int64 `json:"from"` // the watermark before
	To         int64 `json:"to"`
	Lost       int64 `json:"lost_offsets"` // offsets that are passed
	Generation int64 `json:"generation"`   // after it
}

// SkipOffsets moves a partition's watermark forward: what lies between is never
// decided, and counted as lost. Running members notice and begin again there. committed is
// what Kafka has for the group, or projection.NoOffset: until there is a newer commit, members do not go back to it.
func (s *Store) SkipOffsets(ctx context.Context, key projection.WatermarkKey, to, committed int64, execute bool, by projection.By) (OffsetSkip, error) {
	skip := OffsetSkip{To: to}
	errDryRun := errors.New("dry run")
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		args := []any{key.Group, key.Topic, uuid.UUID(key.TopicID), key.Partition}
		var generation int64
		err := tx.QueryRow(ctx, `SELECT next_offset, generation FROM projection_watermarks
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4 FOR NO KEY UPDATE`, args...).Scan(&skip.From, &generation)
		if errors.Is(err, pgx.ErrNoRows) {
			return &projection.NotFoundError{What: fmt.Sprintf("a watermark of %s for group %s", key.TopicPartition, key.Group)}
		}
		if err != nil {
			return fmt.Errorf("locking the watermark: %w", err)
		}
		if to <= skip.From {
			return &projection.RefusedError{
				Reason: fmt.Sprintf("the watermark is at offset %d already", skip.From),
				Advice: "to read records again, move the group back with Kafka's tools; to decide them anew, rebuild",
			}
		}
		skip.Lost, skip.Generation = to-skip.From, generation+1
		from := skip.From
		if committed != projection.NoOffset {
			from = min(from, committed)
		}
		if _, err := tx.Exec(ctx, `UPDATE projection_watermarks SET next_offset = $5, lost_offsets = lost_offsets + $6, generation = generation + 1,
				skipped_from = $7, skipped_to = $5, updated_at = now()
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4`, append(args, to, skip.Lost, from)...); err != nil {
			return fmt.Errorf("moving the watermark: %w", err)
		}
		if err := audit(ctx, tx, projection.AuditEntry{
			Actor: by.Actor, Action: "offsets.skip", Target: "partition " + key.String() + " of group " + key.Group, Comment: by.Comment,
			Before: map[string]any{"next_offset": skip.From, "generation": generation, "committed": committed},
			After:  map[string]any{"next_offset": to, "generation": skip.Generation, "lost_offsets": skip.Lost},
		}); err != nil {
			return err
		}
		if !execute {
			return errDryRun
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return skip, fmt.Errorf("skipping offsets of %s: %w", key.TopicPartition, err)
	}
	return skip, nil
}

// SetDeadlines stores the deadlines for all gaps and letters; zero leaves one as it is.
func (s *Store) SetDeadlines(ctx context.Context, gap, letter time.Duration) error {
	_, err := s.pool.Exec(ctx, `UPDATE operator_deadlines SET
		gap = CASE WHEN $1::interval > '0'::interval THEN $1::interval ELSE gap END,
		letter = CASE WHEN $2::interval > '0'::interval THEN $2::interval ELSE letter END`, gap, letter)
	if err != nil {
		return fmt.Errorf("storing the deadlines: %w", err)
	}
	return nil
}

// ForgetSkip implements projection.Tx.
func (t *tx) ForgetSkip(ctx context.Context, key projection.WatermarkKey) error {
	return forgetSkip(ctx, t.Tx, key)
}

// ForgetSkip says that there is a commit behind the offsets that were skipped.
func (s *Store) ForgetSkip(ctx context.Context, key projection.WatermarkKey) error {
	return s.inTx(ctx, func(tx pgx.Tx) error { return forgetSkip(ctx, tx, key) })
}

func forgetSkip(ctx context.Context, tx pgx.Tx, key projection.WatermarkKey) error {
	_, err := tx.Exec(ctx, `UPDATE projection_watermarks SET skipped_from = NULL, skipped_to = NULL
		WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4`, watermarkArgs(key)...)
	if err != nil {
		return fmt.Errorf("forgetting the skip of %s: %w", key.TopicPartition, err)
	}
	return nil
}
