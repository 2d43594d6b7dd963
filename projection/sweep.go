package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// sweepStep is how many orders one step of the sweep looks at, at most.
const sweepStep = 1000

// sweepTimeout is the deadline of one step: an order whose row is locked must not keep the others waiting for long.
const sweepTimeout = 3 * time.Second

// drains are orders whose parked events are due, but beyond the budget of the turn before.
type drains struct {
	mu    sync.Mutex
	ids   map[string]struct{}
	ready chan struct{} // capacity 1
}

// drainSoon has orders drained by the sweep at once.
func (p *Projector) drainSoon(orderIDs []string) {
	if len(orderIDs) == 0 {
		return
	}
	d := &p.drains
	d.mu.Lock()
	if d.ids == nil {
		d.ids = make(map[string]struct{})
	}
	for _, id := range orderIDs {
		d.ids[id] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

func (d *drains) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := slices.Sorted(maps.Keys(d.ids))
	d.ids = nil
	return ids
}

// Sweep drains, until ctx ends, what a lost race or a moved key left parked
// although its turn has come, and closes letters that have been overtaken. Every member
// runs it; a lock in the database makes one at a time do the work. What a turn left beyond its budget is
// drained at once.
func (p *Projector) Sweep(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.SweepInterval)
	defer ticker.Stop()
	for {
		sweep := false
		select {
		case <-ctx.Done():
			return
		case <-p.drains.ready:
		case <-ticker.C:
			sweep = true
		}
		if p.cfg.Control != nil {
			if _, why := p.cfg.Control.Closed(); why != nil {
				continue // nothing is applied while the group is paused
			}
		}
		_, err := p.drainAll(ctx, p.drains.take())
		if sweep {
			_, swept := p.SweepOnce(ctx)
			err = errors.Join(err, swept)
		}
		if err != nil && ctx.Err() == nil {
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
	return p.drainAll(ctx, ids)
}

// drainAll drains orders. One that fails does not keep the others from it.
func (p *Projector) drainAll(ctx context.Context, ids []string) (drained int, err error) {
	var errs []error
	for _, id := range ids {
		err := p.drain(ctx, p.sweeper, id)
		switch {
		case err == nil:
			drained++
			p.metrics.swept.Inc()
		case ctx.Err() != nil:
			return drained, context.Cause(ctx)
		default:
			errs = append(errs, fmt.Errorf("draining order %s: %w", quoted(id), err))
		}
	}
	if len(errs) > maxSweepErrors {
		errs = append(errs[:maxSweepErrors], fmt.Errorf("and %d more orders", len(errs)-maxSweepErrors))
	}
	return drained, errors.Join(errs...)
}

// drain decides what is due of an order's parked events, in transactions of bounded size.
func (p *Projector) drain(ctx context.Context, retrier *Retrier, orderID string) error {
	job := &drainJob{projector: p, retrier: retrier, orderID: orderID, older: make(map[coordinate]*Envelope)}
	return retrier.Run(ctx, retrier.Limited(p.log, 1), job)
}

// maxSweepErrors is how many orders an error names.
const maxSweepErrors = 5

// drainJob decides the parked events of an order whose turn has come. A piece is one of them.
type drainJob struct {
	projector *Projector
	retrier   *Retrier
	orderID   string
	older     map[coordinate]*Envelope
	log       TopicPartition
	taken     []coordinate // by the latest try
	done      bool
}

func (j *drainJob) What(int) string { return "draining order " + quoted(j.orderID) }

func (j *drainJob) Left() int {
	if j.done {
		return 0
	}
	b := turnBudget()
	return b.events
}

func (j *drainJob) Try(ctx context.Context, n int) error {
	b := turnBudget()
	b.events = n
	return j.step(ctx, b, nil)
}

// step decides parked events in one transaction, and notes which it took.
func (j *drainJob) step(ctx context.Context, b budget, blamed map[coordinate]string) error {
	p := j.projector
	w := newWork(j.orderID, nil)
	t := &turn{
		group: p.cfg.Group, decoder: p.cfg.Decoder, older: j.older, budget: b, blamed: blamed, sorted: []*work{w},
	}
	err := p.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
		t.tx = tx
		return t.run(ctx)
	})
	j.taken = j.taken[:0]
	for _, e := range w.unparked {
		j.log = e.Record.TopicPartition
		j.taken = append(j.taken, coordinate{e.Record.Partition, e.Record.Offset})
	}
	if err == nil {
		j.done = !w.unfinished
	}
	return err
}

// Answer implements Job: a parked event of a version that is applied by now takes a comparison with the record.
func (j *drainJob) Answer(ctx context.Context, err error) (bool, error) {
	needed, ok := isOneOf[*errOlderNeeded](err)
	if !ok || len(j.taken) == 0 {
		return false, nil
	}
	return true, j.projector.readOlder(ctx, j.older, j.log, needed.coordinates)
}

// Suspect implements Job. Where nothing was taken, it is not a parked event that fails.
func (j *drainJob) Suspect(context.Context, int, Failure, error) int {
	if len(j.taken) == 0 {
		return 0
	}
	return -1
}

// Alone makes a parked event that the database refuses a dead letter. Every other failure is the order's: the
// next sweep tries again.
func (j *drainJob) Alone(ctx context.Context, class Failure, cause error) error {
	p := j.projector
	if class != BadData || len(j.taken) != 1 {
		return cause
	}
	one := turnBudget()
	one.events = 1
	at := j.taken[0]
	err := j.retrier.Bounded(ctx, func(ctx context.Context) error {
		return j.step(ctx, one, map[coordinate]string{at: blameDetail(cause)})
	})
	if err == nil {
		p.log.Error("the database refuses a parked event, also when it is tried alone: dead letter",
			"order_id", j.orderID, "offset", at.offset, "error", cause)
		p.metrics.Blamed.Inc()
	}
	return err
}
