package projection

import (
	"context"
	"fmt"
)

// join marks the records of a batch whose orders have held records in this log: they wait behind those. held is the
// watermark's count, which spares the look-up where nothing is held.
func (p *partition) join(ctx context.Context, tx Tx, b *batch, held int64) error {
	for i := range b.items {
		b.items[i].held = false
	}
	if held == 0 {
		return nil
	}
	ids := make([]string, 0, len(b.items))
	for i := range b.items {
		if id := b.items[i].orderID; id != "" {
			ids = append(ids, id)
		}
	}
	orders, err := tx.HeldOrders(ctx, p.key, ids)
	if err != nil {
		return fmt.Errorf("looking for held records: %w", err)
	}
	for i := range b.items {
		it := &b.items[i]
		if it.orderID != "" && orders[it.orderID] {
			it.held, it.outcome = true, Held
		}
	}
	return nil
}

// holdJoined keeps the records that join their orders' queues. It returns how many records the group holds then, 0 where none joined.
func (p *partition) holdJoined(ctx context.Context, tx Tx, b *batch, mark int64) (open int64, err error) {
	var joined []*HeldRecord
	for i := range b.items {
		if it := &b.items[i]; it.held && it.rec.Offset >= mark {
			h := it.hold("it waits behind an earlier held record of its order")
			h.Class = HeldQueued
			joined = append(joined, h)
		}
	}
	if len(joined) == 0 {
		return 0, nil
	}
	if open, err = tx.Hold(ctx, p.key.Group, joined); err != nil {
		return 0, fmt.Errorf("holding records: %w", err)
	}
	return open, nil
}

// hold makes a held record of an item.
func (it *item) hold(cause string) *HeldRecord {
	h := &HeldRecord{Record: *it.rec, OrderID: it.orderID, Cause: clip(cause, 500)}
	if it.invalid == nil {
		h.EventID, h.Version, h.Type = it.env.EventID, it.env.Version, it.env.Type
	} else {
		h.EventID, h.Version = it.invalid.EventID, it.invalid.Version
	}
	return h
}

// holdOne holds the first of the items, which fails alone. The others are what it is compared with where the
// database knows no other order.
func (p *partition) holdOne(ctx context.Context, one *batch, others []item, class Failure, cause error) error {
	pr := p.projector
	it := &one.items[0]
	h := it.hold(cause.Error())
	h.Class, h.Failures = class.String(), 1
	if class.Counts() {
		h.Counted = 1
	}
	var counts Counts
	var trip *BreakerTrip
	err := pr.bounded(ctx, func(ctx context.Context) error {
		return pr.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			if pr.cfg.NeverHold {
				if err := Prove(ctx, tx, p.key.Group, it.orderID, p.rivals(tx, it.orderID, others)); err != nil {
					return err
				}
				return &endError{fmt.Errorf("the record of order %s at %s offset %d cannot be written while others can: %w",
					quoted(it.orderID), p.key.TopicPartition, it.rec.Offset, cause)}
			}
			counts, trip, err = HoldAlone(ctx, tx, &p.Progress, pr.cfg.Control, h, one.begin, one.next, p.trial(tx, it), p.rivals(tx, it.orderID, others))
			return err
		})
	})
	if err != nil {
		return err
	}
	if trip != nil {
		pr.cfg.Control.Tripped(*trip)
	}
	p.Advanced(one.next)
	p.cache.forget(it.orderID)
	pr.metrics.Count(counts, 1)
	if counts[Held] == 0 {
		p.log.Warn("a record that is read again cannot be made durable now; it keeps the place that it has", "offset", it.rec.Offset, "order_id", it.orderID, "error", cause)
		return nil
	}
	p.log.Error("a record cannot be made durable while others can: it is held, and its order shows as blocked",
		"offset", it.rec.Offset, "order_id", it.orderID, "event_id", h.EventID, "class", class.String(), "error", cause,
		"hint", "orderprojector held list; the record is tried again by itself")
	return nil
}

// rivals are trials with the first records of other orders.
func (p *partition) rivals(tx Tx, orderID string, others []item) []func(context.Context) error {
	var trials []func(context.Context) error
	for i := range others {
		it := &others[i]
		if it.orderID == "" || it.orderID == orderID || it.invalid != nil {
			continue
		}
		trial := p.trial(tx, it)
		trials = append(trials, func(ctx context.Context) error {
			if err := trial(ctx); err != nil {
				return err
			}
			if it.outcome != Applied && it.outcome != Parked {
				return fmt.Errorf("the record at offset %d writes nothing", it.rec.Offset)
			}
			return nil
		})
		if len(trials) == heldRivals {
			break
		}
	}
	return trials
}

// trial decides one record without its consequences: no parked event is released.
func (p *partition) trial(tx Tx, it *item) func(context.Context) error {
	return func(ctx context.Context) error {
		one := []item{*it}
		t := p.projector.carefulTurn(tx, one, p.older)
		t.budget = budget{}
		err := t.run(ctx)
		it.outcome = one[0].outcome
		return err
	}
}

// carefulTurn decides a single record on its order's locked row, as if it were read for the first time.
func (p *Projector) carefulTurn(tx Tx, one []item, older map[coordinate]*Envelope) *turn {
	b := &batch{items: one, begin: one[0].rec.Offset, next: one[0].rec.Offset + 1, memory: newBatchMemory()}
	t := &turn{
		tx: tx, group: p.cfg.Group, decoder: p.cfg.Decoder, batch: b, older: older, budget: turnBudget(), careful: true,
		sorted: b.works(),
	}
	for _, w := range t.sorted {
		w.reset(nil, false)
	}
	return t
}

// newHeldWorker returns what tries the projection's held records again.
func newHeldWorker(p *Projector) *HeldWorker[Tx] {
	older := make(map[coordinate]*Envelope)
	var log TopicPartition
	return NewHeldWorker(HeldConfig[Tx]{
		Group: p.cfg.Group, Policy: p.cfg.Held, InTx: p.cfg.Store.InTx, Timeout: p.cfg.BatchTimeout, Classify: p.classify, Hint: p.cfg.Hint,
		Control: p.cfg.Control, Logger: p.log, Metrics: &p.metrics.MemberMetrics, Blocks: true,
		Decide: func(ctx context.Context, tx Tx, h *HeldRecord) (Outcome, error) {
			log = h.Record.TopicPartition
			one := []item{newItem(p.cfg.Decoder, &h.Record)}
			if err := substitutesOf(ctx, tx, log, &batch{items: one}); err != nil {
				return 0, err
			}
			t := p.carefulTurn(tx, one, older)
			err := t.run(ctx)
			if err == nil {
				p.drainSoon(t.unfinished())
			}
			return one[0].outcome, err
		},
		Answer: func(ctx context.Context, err error) (bool, error) {
			if undrained, ok := isOneOf[*errUndrained](err); ok {
				return p.drain(ctx, p.sweeper, undrained.orderID) == nil, nil
			}
			needed, ok := isOneOf[*errOlderNeeded](err)
			if !ok {
				clear(older)
				return false, nil
			}
			return true, p.readOlder(ctx, older, log, needed.coordinates)
		},
		Settled: func() { clear(older) },
	})
}
