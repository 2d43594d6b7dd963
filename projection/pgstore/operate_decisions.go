package pgstore

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

var (
	sqlDecisionsRead = statement("decisions_read")
	sqlDecisionsAt   = statement("decisions_at")
)

// Decisions implements projection.Tx.
func (t *tx) Decisions(ctx context.Context, orderIDs []string) (map[string][]projection.OperatorDecision, error) {
	rows, err := t.Query(ctx, sqlDecisionsRead, orderIDs)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]projection.OperatorDecision)
	for _, d := range found {
		all[d.OrderID] = append(all[d.OrderID], d)
	}
	return all, nil
}

// SubstitutesAt implements projection.Tx.
func (t *tx) SubstitutesAt(ctx context.Context, log projection.TopicPartition, offsets []int64) ([]projection.OperatorDecision, error) {
	rows, err := t.Query(ctx, sqlDecisionsAt, log.Topic, uuid.UUID(log.TopicID), log.Partition, offsets)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanDecision)
}

// scanDecision reads the columns that every decisions_*.sql selects.
func scanDecision(row pgx.CollectableRow) (projection.OperatorDecision, error) {
	var (
		d                       projection.OperatorDecision
		topicID                 *uuid.UUID
		digest                  []byte
		undoneAt                *time.Time
		undoneBy, undoneComment *string
	)
	err := row.Scan(&d.ID, &d.OrderID, &d.Kind, &d.From, &d.To, &d.LetterID, &d.Log.Topic, &topicID, &d.Log.Partition,
		&d.Offset, &digest, &d.Substitute, &d.ByCoordinates, &d.By.Actor, &d.By.Comment, &d.DecidedAt, &undoneAt, &undoneBy, &undoneComment)
	if topicID != nil {
		d.Log.TopicID = projection.TopicID(*topicID)
	}
	copy(d.Digest[:], digest)
	d.DecidedAt = d.DecidedAt.UTC()
	if undoneAt != nil {
		d.UndoneAt, d.Undone = undoneAt.UTC(), &projection.By{}
		if undoneBy != nil {
			d.Undone.Actor = *undoneBy
		}
		if undoneComment != nil {
			d.Undone.Comment = *undoneComment
		}
	}
	return d, err
}
