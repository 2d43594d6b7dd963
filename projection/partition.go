package projection

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// partition applies the records of one partition. It implements PartitionHandler.
type partition struct {
	Progress
	projector *Projector
	log       *slog.Logger
	cache     *rowCache
	older     map[coordinate]*Envelope // records read again for the batch at hand
}

// Handle implements PartitionHandler.
func (p *partition) Handle(ctx context.Context, records []Record) error {
	if len(records) == 0 {
		return nil
	}
	p.older = nil
	memory := p.projector.memories.take()
	defer p.projector.memories.giveBack(memory)
	return p.project(ctx, newBatch(p.projector.cfg.Decoder, records, memory, p.position))
}

// Close forgets what is remembered of the partition.
func (p *partition) Close() { p.cache.clear() }

// project makes a batch durable. Failures that heal are waited out; a batch that takes too long is
// halved; one that the database refuses is narrowed down to the record to blame.
func (p *partition) project(ctx context.Context, b *batch) error {
	pr := p.projector
	tries := pr.attempts(p.log, p.key.TopicPartition)
	for {
		err := pr.bounded(ctx, func(ctx context.Context) error { return p.apply(ctx, b, -1) })
		if err == nil {
			tries.Over()
			return nil
		}
		p.forget(b)
		if final(err) {
			tries.Over()
			pr.metrics.Rewinds.Inc()
			return err
		}
		if needed, ok := isOneOf[*errOlderNeeded](err); ok {
			if p.older == nil {
				p.older = make(map[coordinate]*Envelope)
			}
			if err = pr.readOlder(ctx, p.older, p.key.TopicPartition, needed.coordinates); err == nil {
				continue
			}
		} else if ctx.Err() == nil {
			class := pr.classify(err)
			bad := class == BadData
			if (class == TooSlow || bad) && len(b.items) > 1 {
				p.log.Warn("splitting a batch", "records", len(b.items), "offset", b.items[0].rec.Offset, "error", err)
				first, second := b.split()
				if err := p.project(ctx, first); err != nil {
					return err
				}
				return p.project(ctx, second)
			}
			if bad {
				if done, blameErr := p.blame(ctx, b, err); done {
					tries.Over()
					return nil
				} else if blameErr != nil {
					err = blameErr
				}
			}
		}
		if err := tries.Pause(ctx, fmt.Sprintf("applying offsets %d to %d", b.begin, b.next-1), err); err != nil {
			return err
		}
	}
}

// blame deals with a record that fails when it is tried alone: it is dead-lettered with the cause, unless it
// goes through without the parked events that it releases. Those are the sweep's then.
func (p *partition) blame(ctx context.Context, b *batch, cause error) (done bool, err error) {
	pr := p.projector
	it := &b.items[0]
	if it.invalid == nil && it.orderID != "" {
		err = pr.bounded(ctx, func(ctx context.Context) error { return p.apply(ctx, b, 0) })
		if err == nil {
			p.log.Warn("applied a record without the parked events behind it, which the database refuses", "offset", it.rec.Offset, "order_id", it.orderID)
			return true, nil
		}
		p.forget(b)
		if ctx.Err() != nil || pr.classify(err) != BadData {
			return false, err
		}
	}
	p.log.Error("the database refuses a record, also when it is tried alone: dead letter",
		"offset", it.rec.Offset, "order_id", it.env.OrderID, "event_id", it.env.EventID, "error", cause)
	refused := *it
	refused.blamed = true
	refused.refuse(&DecodeError{
		Detail: blameDetail(cause), OrderID: it.env.OrderID, EventID: it.env.EventID, Version: it.env.Version,
	})
	one := &batch{items: []item{refused}, begin: b.begin, next: b.next, memory: b.memory}
	if err := pr.bounded(ctx, func(ctx context.Context) error { return p.apply(ctx, one, -1) }); err != nil {
		p.forget(b)
		return false, err
	}
	pr.metrics.Blamed.Inc()
	return true, nil
}

func blameDetail(cause error) string {
	if panicked, ok := isOneOf[*panicError](cause); ok {
		return clip(fmt.Sprintf("panic while deciding: %v", panicked.value), 500)
	}
	return clip("the database refuses it: "+cause.Error(), 500)
}

// apply is one attempt at one batch: one transaction.
func (p *partition) apply(ctx context.Context, b *batch, drainLimit int) error {
	began := time.Now()
	t := &turn{group: p.key.Group, decoder: p.projector.cfg.Decoder, batch: b, older: p.older, drainLimit: drainLimit}
	var counts Counts
	var trip *BreakerTrip
	err := p.projector.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
		t.tx = tx
		mark, err := p.Fence(ctx, tx, b.begin)
		if err != nil {
			return err
		}
		t.mark = mark.NextOffset
		if err := p.load(ctx, t); err != nil {
			return err
		}
		if err := t.run(ctx); err != nil {
			return err
		}
		counts = b.counts(mark.NextOffset)
		if b.next <= mark.NextOffset {
			return nil // read again: everything was counted the first time
		}
		if err := tx.AdvanceWatermark(ctx, p.key, b.next, counts, 0); err != nil {
			return fmt.Errorf("advancing the watermark: %w", err)
		}
		trip, err = p.projector.cfg.Control.Judge(ctx, tx, p.key, counts, func(maxOrders int64) []Refusals {
			return b.refusals(mark.NextOffset, maxOrders)
		})
		return err
	})
	if err != nil {
		return err
	}
	if trip != nil {
		p.projector.cfg.Control.Tripped(*trip)
	}
	p.Advanced(b.next)
	for _, w := range t.sorted {
		if w.base != nil {
			p.cache.put(w.base)
		}
	}
	p.observe(b, counts, began)
	return nil
}

func (p *partition) observe(b *batch, counts Counts, began time.Time) {
	m := p.projector.metrics
	visible := int64(0)
	for i := range b.items {
		if !b.items[i].rec.Control {
			visible++
		}
	}
	m.Count(counts, visible)
	m.ApplyDuration.Observe(time.Since(began).Seconds())
	m.BatchRecords.Observe(float64(len(b.items)))
	if oldest := b.oldest(); counts.Total() > 0 && !oldest.IsZero() {
		m.visible.Observe(max(0, time.Since(oldest).Seconds()))
	}
}

// load builds the works of a turn from the cache and one read.
func (p *partition) load(ctx context.Context, t *turn) error {
	if err := p.loadSubstitutes(ctx, t); err != nil {
		return err
	}
	t.sorted = t.batch.works()
	var unknown []string
	for _, w := range t.sorted {
		base := p.cache.get(w.orderID)
		if base == nil {
			unknown = append(unknown, w.orderID)
		}
		w.reset(base, false)
	}
	if len(unknown) == 0 {
		return nil
	}
	rows, err := t.tx.Rows(ctx, unknown)
	if err != nil {
		return fmt.Errorf("reading orders: %w", err)
	}
	for _, w := range t.sorted {
		if row := rows[w.orderID]; row != nil {
			w.reset(row, false)
		}
	}
	return nil
}

// loadSubstitutes finds the orders of records that do not name one, but have a
// substitute that does.
func (p *partition) loadSubstitutes(ctx context.Context, t *turn) error {
	var offsets []int64
	for i := range t.batch.items {
		if it := &t.batch.items[i]; it.invalid != nil && it.invalid.Version == 0 {
			it.orderID = ""
			offsets = append(offsets, it.rec.Offset)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	substitutes, err := t.tx.SubstitutesAt(ctx, p.key.TopicPartition, offsets)
	if err != nil {
		return fmt.Errorf("reading operators' substitutes: %w", err)
	}
	for _, d := range substitutes {
		if it := t.batch.at(d.Offset); it != nil {
			it.orderID = d.OrderID
		}
	}
	return nil
}

// forget drops what the cache says of a batch whose transaction did not end well.
func (p *partition) forget(b *batch) {
	for i := range b.items {
		if id := b.items[i].orderID; id != "" {
			p.cache.forget(id)
		}
	}
}

// Check implements PartitionHandler.
func (p *partition) Check(ctx context.Context) error {
	err := p.projector.bounded(ctx, func(ctx context.Context) error {
		return p.projector.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
			_, err := p.Fence(ctx, tx, p.position)
			return err
		})
	})
	if final(err) {
		p.cache.clear()
		p.projector.metrics.Rewinds.Inc()
	}
	return err
}

// Skip implements PartitionHandler.
func (p *partition) Skip(ctx context.Context, to int64) error {
	lost := to - p.position
	err := p.projector.retry(ctx, p.projector.attempts(p.log, p.key.TopicPartition), "recording lost offsets", func(ctx context.Context) error {
		return p.projector.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
			mark, err := p.Fence(ctx, tx, p.position)
			if err != nil {
				return err
			}
			lost = max(0, to-mark.NextOffset)
			return tx.AdvanceWatermark(ctx, p.key, to, Counts{}, lost)
		})
	})
	if err == nil {
		p.Advanced(to)
	}
	return err
}
