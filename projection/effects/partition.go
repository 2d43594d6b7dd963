package effects

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// partition deals with the records of one partition. It implements projection.PartitionHandler.
type partition[T Tx] struct {
	projection.Progress
	consumer *Consumer[T]
	log      *slog.Logger
	// known is the offset below which records were dealt with before, as Kafka's commit or this process says.
	known  int64
	logEnd int64 // as it was when the member got the partition
	items  []item
}

// batch is a run of records of one partition, in offset order.
type batch struct {
	items []item
	begin int64 // everything below is durable, as far as the member knows
	next  int64 // the position once the batch is durable
}

// Handle implements projection.PartitionHandler.
func (p *partition[T]) Handle(ctx context.Context, records []projection.Record) error {
	if len(records) == 0 {
		return nil
	}
	b := &batch{items: p.items[:0], begin: p.Position()}
	for i := range records {
		it := p.consumer.newItem(&records[i])
		it.event.Repeated = records[i].Offset < p.known
		it.event.New = records[i].Offset >= p.logEnd
		b.items = append(b.items, it)
		b.next = records[i].Offset + 1
	}
	p.items = b.items
	defer clear(p.items) // they hold on to the records
	return p.deal(ctx, b, older{})
}

// Close implements projection.PartitionHandler.
func (p *partition[T]) Close() {}

// deal makes a batch durable. Failures that heal are waited out; a batch that takes too long is
// halved; one that the database or the effect refuses is narrowed down to the record to blame.
func (p *partition[T]) deal(ctx context.Context, b *batch, seen older) error {
	c := p.consumer
	tries := c.retrier.Attempts(p.log, p.Key().TopicPartition)
	for {
		err := c.retrier.Bounded(ctx, func(ctx context.Context) error { return p.apply(ctx, b, seen) })
		if err == nil {
			tries.Over()
			return nil
		}
		if _, rewind := isOneOf[*projection.RewindError](err); rewind {
			tries.Over()
			c.metrics.Rewinds.Inc()
			return err
		}
		if needed, ok := isOneOf[*olderNeeded](err); ok {
			if err = c.readOlder(ctx, needed, seen); err == nil {
				continue
			}
		} else if ctx.Err() == nil {
			class := c.retrier.Classify(err)
			if (class == projection.TooSlow || class == projection.BadData) && len(b.items) > 1 {
				p.log.Warn("splitting a batch", "records", len(b.items), "offset", b.items[0].event.Record.Offset, "error", err)
				half := len(b.items) / 2
				middle := b.items[half-1].event.Record.Offset + 1
				if err := p.deal(ctx, &batch{items: b.items[:half], begin: b.begin, next: middle}, seen); err != nil {
					return err
				}
				return p.deal(ctx, &batch{items: b.items[half:], begin: middle, next: b.next}, seen)
			}
			if it := &b.items[0]; class == projection.BadData && !it.blamed {
				p.log.Error("a record is refused, also when it is tried alone: dead letter", "offset", it.event.Record.Offset,
					"order_id", it.event.OrderID, "event_id", it.event.EventID, "error", err, "stack", stackOf(err))
				it.blame(err)
				c.metrics.Blamed.Inc()
				continue
			}
		}
		if err := tries.Pause(ctx, fmt.Sprintf("applying offsets %d to %d", b.begin, b.next-1), err); err != nil {
			return err
		}
	}
}

// blame makes the record a dead letter with the cause.
func (it *item) blame(cause error) {
	it.blamed = true
	env := &it.event.Envelope
	detail := "the database refuses it: " + cause.Error()
	if panicked, ok := isOneOf[*panicError](cause); ok {
		detail = panicked.Error()
	}
	it.refuse(&projection.DecodeError{Detail: fmt.Sprintf("%.500s", detail), OrderID: env.OrderID, EventID: env.EventID, Version: env.Version})
}

func stackOf(err error) string {
	if panicked, ok := isOneOf[*panicError](err); ok {
		return string(panicked.stack)
	}
	return ""
}

// apply is one attempt at one batch: one transaction.
func (p *partition[T]) apply(ctx context.Context, b *batch, seen older) error {
	c := p.consumer
	began := time.Now()
	var counts projection.Counts
	var trip *projection.BreakerTrip
	err := c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
		mark, err := p.Fence(ctx, tx, b.begin)
		if err != nil {
			return err
		}
		items := make([]*item, 0, len(b.items))
		for i := range b.items {
			it := &b.items[i]
			it.again = it.event.Record.Offset < mark.NextOffset
			items = append(items, it)
		}
		if err := c.decide(ctx, tx, items, seen); err != nil {
			return err
		}
		// A record below the watermark has its place already, and makes no new letter.
		firsts := items[:0]
		for _, it := range items {
			if !it.event.Record.Control && !it.again {
				firsts = append(firsts, it)
			}
		}
		if err := c.keep(ctx, tx, firsts); err != nil {
			return err
		}
		counts = projection.Counts{}
		for _, it := range firsts {
			counts[it.outcome]++
		}
		if b.next <= mark.NextOffset {
			return nil // read again: everything was counted the first time
		}
		if err := tx.AdvanceWatermark(ctx, p.Key(), b.next, counts, 0); err != nil {
			return fmt.Errorf("advancing the watermark: %w", err)
		}
		trip, err = c.cfg.Control.Judge(ctx, tx, p.Key(), counts, func(maxOrders int64) []projection.Refusals {
			return refusals(firsts, maxOrders)
		})
		return err
	})
	if err != nil {
		return err
	}
	if trip != nil {
		c.cfg.Control.Tripped(*trip)
	}
	p.Advanced(b.next)
	c.reach(&p.Progress)
	p.observe(b, counts, began)
	return nil
}

// keep writes the dead letters of refused records, and holds those whose effect failed.
func (c *Consumer[T]) keep(ctx context.Context, tx T, items []*item) error {
	var letters []*projection.DeadLetter
	var held []Held
	for _, it := range items {
		switch {
		case it.failed != nil:
			held = append(held, Held{Record: *it.event.Record, OrderID: it.event.OrderID, EventID: it.event.EventID, Cause: it.failed.Error()})
		case it.outcome.DeadLetters():
			letters = append(letters, it.letter(c.cfg.Group))
		}
	}
	if len(letters) > 0 {
		if err := tx.AddLetters(ctx, letters); err != nil {
			return fmt.Errorf("writing dead letters: %w", err)
		}
	}
	if len(held) > 0 {
		if err := tx.Hold(ctx, c.cfg.Group, held); err != nil {
			return fmt.Errorf("holding records: %w", err)
		}
	}
	return nil
}

// refusals counts the items that can open the breaker.
func refusals(items []*item, maxOrders int64) []projection.Refusals {
	byReason := map[projection.Outcome]*projection.Refusals{}
	orders := map[projection.Outcome]map[string]bool{}
	var all []projection.Refusals
	for _, it := range items {
		if !it.outcome.DeadLetters() || it.outcome == projection.Unsupported {
			continue
		}
		r := byReason[it.outcome]
		if r == nil {
			r = &projection.Refusals{Reason: it.outcome}
			byReason[it.outcome], orders[it.outcome] = r, map[string]bool{}
		}
		r.Letters++
		l := it.letter("")
		id := l.OrderID
		if id == "" { // records that name no order stand each for themselves
			id = fmt.Sprintf("%d/%d", l.Record.Partition, l.Record.Offset)
		}
		if seen := orders[it.outcome]; int64(len(r.OrderIDs)) < maxOrders && !seen[id] {
			seen[id] = true
			r.OrderIDs = append(r.OrderIDs, id)
		}
	}
	for _, o := range projection.Outcomes() {
		if r := byReason[o]; r != nil {
			all = append(all, *r)
		}
	}
	return all
}

func (p *partition[T]) observe(b *batch, counts projection.Counts, began time.Time) {
	m := p.consumer.metrics
	visible := int64(0)
	var applied []*Event
	for i := range b.items {
		it := &b.items[i]
		if !it.event.Record.Control {
			visible++
		}
		if it.effect == effectApplied {
			applied = append(applied, &it.event)
		}
	}
	m.Count(counts, visible)
	m.ApplyDuration.Observe(time.Since(began).Seconds())
	m.BatchRecords.Observe(float64(len(b.items)))
	p.consumer.committed(applied)
}

func (c *Consumer[T]) committed(applied []*Event) {
	if observer, ok := c.cfg.Effect.(Observer); ok && len(applied) > 0 {
		observer.Committed(applied)
	}
}

// Check implements projection.PartitionHandler.
func (p *partition[T]) Check(ctx context.Context) error {
	c := p.consumer
	err := c.retrier.Bounded(ctx, func(ctx context.Context) error {
		return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
			_, err := p.Fence(ctx, tx, p.Position())
			return err
		})
	})
	if _, rewind := isOneOf[*projection.RewindError](err); rewind {
		c.metrics.Rewinds.Inc()
	}
	return err
}

// Skip implements projection.PartitionHandler.
func (p *partition[T]) Skip(ctx context.Context, to int64) error {
	c := p.consumer
	err := c.retrier.Retry(ctx, c.retrier.Attempts(p.log, p.Key().TopicPartition), "recording lost offsets", func(ctx context.Context) error {
		return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
			mark, err := p.Fence(ctx, tx, p.Position())
			if err != nil {
				return err
			}
			return tx.AdvanceWatermark(ctx, p.Key(), to, projection.Counts{}, max(0, to-mark.NextOffset))
		})
	})
	if err == nil {
		p.Advanced(to)
		c.reach(&p.Progress)
	}
	return err
}
