package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
)

// verification is what the independent fold says, and how the database compares.
type verification struct {
	result  *reference.Result
	report  *compare.Report
	perKey  map[string]*projection.Counts // outcomes by record key
	records int64
}

// verify folds the topic and compares.
func (s *services) verify(ctx context.Context) (*verification, error) {
	ranges, err := s.reader.Ranges(ctx, topic)
	if err != nil {
		return nil, err
	}
	v := &verification{perKey: map[string]*projection.Counts{}}
	fold := reference.NewFold()
	for _, r := range ranges {
		err := s.reader.ReadRange(ctx, r, func(record projection.Record) error {
			v.records++
			outcome := fold.Add(record)
			counts := v.perKey[string(record.Key)]
			if counts == nil {
				counts = &projection.Counts{}
				v.perKey[string(record.Key)] = counts
			}
			counts[outcome]++
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("folding the topic: %w", err)
		}
		fold.Advance(r.TopicPartition, r.Until)
	}
	v.result = fold.Result()
	// One transaction, so that rows and counts are of one moment.
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) (err error) {
			v.report, err = compare.Compare(ctx, v.result, tx, s.settings.Kafka.Group)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("comparing the database with the fold: %w", err)
	}
	return v, nil
}
