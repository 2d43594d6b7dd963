package projection

import (
	"context"
	"fmt"
	"time"
)

// sweepStep is how many orders one step of the sweep looks at, at most.
const sweepStep = 1000

// Sweep drains, until ctx ends, what a lost race or a moved key left parked
// although its turn has come, and closes letters that have been overtaken. Every member
// runs it; a lock in the database makes one at a time do the work.
func (p *Projector) Sweep(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.SweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p.cfg.Control != nil {
			if _, why := p.cfg.Control.Closed(); why != nil {
				continue // nothing is applied while the group is paused
			}
		}
		if _, err := p.SweepOnce(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("sweeping parked events failed, trying again later", "error", err, "hint", p.cfg.Hint(err))
		}
	}
}

// SweepOnce takes one bounded step of the sweep and returns how many orders it drained.
func (p *Projector) SweepOnce(ctx context.Context) (drained int, err error) {
	var ids []string
	err = p.bounded(ctx, func(ctx context.Context) error {
		return p.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
			if mine, err := tx.TrySweepLock(ctx); err != nil || !mine {
				return err
			}
			var err error
			ids, p.swept, err = tx.Drainable(ctx, p.swept, sweepStep)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("looking for orders to drain: %w", err)
	}
	for _, id := range ids {
		if err := p.drainOrder(ctx, id); err != nil {
			return drained, fmt.Errorf("draining order %s: %w", quoted(id), err)
		}
		drained++
		p.metrics.swept.Inc()
	}
	return drained, nil
}

// drainOrder decides an order's parked events. When the database refuses them together they are tried
// one by one, and the one that fails alone becomes a dead letter.
func (p *Projector) drainOrder(ctx context.Context, orderID string) error {
	_, err := p.drainStep(ctx, orderID, -1, nil)
	for err != nil && p.classify(err) == BadData {
		taken, stepErr := p.drainStep(ctx, orderID, 1, nil)
		switch {
		case stepErr == nil && len(taken) == 0:
			return nil
		case stepErr == nil: // this one is fine; on to the next
		case p.classify(stepErr) == BadData && len(taken) == 1:
			detail := blameDetail(stepErr)
			p.log.Error("the database refuses a parked event, also when it is tried alone: dead letter",
				"order_id", orderID, "offset", taken[0].offset, "error", stepErr)
			_, err = p.drainStep(ctx, orderID, 1, map[coordinate]string{taken[0]: detail})
			if err != nil {
				return err
			}
			p.metrics.Blamed.Inc()
			_, err = p.drainStep(ctx, orderID, -1, nil)
		default:
			return stepErr
		}
	}
	return err
}

// drainStep decides up to limit parked events of an order in one transaction and names those it took.
func (p *Projector) drainStep(ctx context.Context, orderID string, limit int, blamed map[coordinate]string) (taken []coordinate, err error) {
	older := make(map[coordinate]*Envelope)
	for {
		w := newWork(orderID, nil)
		t := &turn{
			group: p.cfg.Group, decoder: p.cfg.Decoder, older: older, drainLimit: limit, blamed: blamed,
			sorted: []*work{w},
		}
		err = p.bounded(ctx, func(ctx context.Context) error {
			return p.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
				t.tx = tx
				return t.run(ctx)
			})
		})
		taken = taken[:0]
		for _, e := range w.unparked {
			taken = append(taken, coordinate{e.Record.Partition, e.Record.Offset})
		}
		needed, ok := isOneOf[*errOlderNeeded](err)
		if !ok {
			return taken, err
		}
		// A parked event of a version that is applied by now: the comparison takes the record.
		if len(w.unparked) == 0 {
			return taken, err
		}
		if err := p.readOlder(ctx, older, w.unparked[0].Record.TopicPartition, needed.coordinates); err != nil {
			return taken, err
		}
	}
}
