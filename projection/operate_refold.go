package projection

import (
	"context"
	"fmt"
	"slices"
)

// Refold folds one order anew like Reproject, from the records at the given offsets (by
// partition) and those that the store keeps, without reading the rest of the topic and without an
// audit row: it is for stores that nobody sees yet. log names the topic; its partition is of no account.
func (o *Operator) Refold(ctx context.Context, orderID string, log TopicPartition, offsets map[int32][]int64) error {
	c := &collection{o: o, orderID: orderID, topicID: log.TopicID, records: make(map[place]Record)}
	for partition, at := range offsets {
		log.Partition = partition
		err := o.cfg.Older.ReadRecords(ctx, log, slices.Compact(slices.Sorted(slices.Values(at))), func(rec Record) {
			c.records[place{rec.TopicPartition, rec.Offset}] = rec
		})
		if err != nil {
			return fmt.Errorf("reading the records of order %s: %w", quoted(orderID), err)
		}
	}
	silent := func(*action, *ReprojectResult) error { return nil }
	err := o.do(ctx, true, true, func(a *action) error {
		marks, err := a.LockWatermarks(a.ctx, o.cfg.Group, o.cfg.Topic, c.topicID)
		if err != nil {
			return fmt.Errorf("locking the watermarks: %w", err)
		}
		c.next = marks // nothing is left to read
		return a.reproject(&ReprojectResult{}, c, nil, nil, silent)
	})
	if err != nil {
		return fmt.Errorf("folding order %s anew: %w", quoted(orderID), err)
	}
	return nil
}

// SweepAll sweeps once from the first order to the last, and returns how many orders it
// drained. Unlike Sweep it is for a store that nobody else works on, and not for use beside it.
func (p *Projector) SweepAll(ctx context.Context) (drained int, err error) {
	p.swept = ""
	for {
		n, err := p.SweepOnce(ctx)
		drained += n
		if err != nil || p.swept == "" {
			return drained, err
		}
	}
}
