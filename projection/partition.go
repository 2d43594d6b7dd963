package projection

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// project makes the records of a batch durable, each in one of its places.
func (p *partition) project(ctx context.Context, b *batch) error {
	retrier := p.projector.retrier
	return retrier.Run(ctx, retrier.Attempts(p.log, p.key.TopicPartition), &batchJob{partition: p, batch: b})
}

// Close forgets what is remembered of the partition.
func (p *partition) Close() { p.cache.clear() }

// batchJob makes the records of a batch durable.
type batchJob struct {
	*partition
	batch   *batch
	passed  int              // records
	failing map[string]error // orders of which no record can be made durable now
}

func (j *batchJob) Left() int { return len(j.batch.items) - j.passed }

// next is a batch of the next n records.
func (j *batchJob) next(n int) *batch { return j.batch.part(j.passed, n, j.position) }

func (j *batchJob) What(n int) string {
	b := j.next(n)
	return fmt.Sprintf("applying offsets %d to %d", b.begin, b.next-1)
}

func (j *batchJob) Try(ctx context.Context, n int) error {
	b := j.next(n)
	if i, err := j.failingIn(b); i >= 0 {
		return err // it is known without another wait
	}
	return j.pass(n, j.try(ctx, b, turnBudget()))
}

func (j *batchJob) try(ctx context.Context, b *batch, drain budget) error {
	err := j.apply(ctx, b, drain)
	if err != nil {
		j.forget(b)
		if final(err) {
			j.projector.metrics.Rewinds.Inc()
		}
	}
	return err
}

func (j *batchJob) pass(n int, err error) error {
	if err == nil {
		j.passed += n
	}
	return err
}

func (j *batchJob) Answer(ctx context.Context, err error) (bool, error) {
	if undrained, ok := isOneOf[*errUndrained](err); ok && undrained.at.offset == j.batch.items[j.passed].rec.Offset {
		// What comes before the record is durable. The order's drain is a job of its own, in bounded transactions.
		if failed := j.projector.drain(ctx, j.projector.retrier, undrained.orderID); failed != nil {
			j.known(undrained.orderID, failed)
			return false, nil
		}
		return true, nil
	}
	needed, ok := isOneOf[*errOlderNeeded](err)
	if !ok {
		return false, nil
	}
	if j.older == nil {
		j.older = make(map[coordinate]*Envelope)
	}
	return true, j.projector.readOlder(ctx, j.older, j.key.TopicPartition, needed.coordinates)
}

// Suspect implements Job. An error may name the order, and the database says which rows are locked.
func (j *batchJob) Suspect(ctx context.Context, n int, class Failure, err error) int {
	b := j.next(n)
	if i, _ := j.failingIn(b); i >= 0 {
		return i
	}
	if undrained, ok := isOneOf[*errUndrained](err); ok {
		return slices.IndexFunc(b.items, func(it item) bool { return it.rec.Offset == undrained.at.offset })
	}
	if row, ok := isOneOf[*RowError](err); ok {
		return slices.IndexFunc(b.items, func(it item) bool { return it.orderID == row.OrderID && !it.held })
	}
	if class != Locked && class != TooSlow {
		return -1
	}
	var ids []string
	_ = j.projector.retrier.Briefly(ctx, func(ctx context.Context) error {
		return j.projector.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			var asked []string
			for i := range b.items {
				if it := &b.items[i]; it.orderID != "" && !it.held {
					asked = append(asked, it.orderID)
				}
			}
			slices.Sort(asked)
			ids, err = tx.LockedElsewhere(ctx, slices.Compact(asked))
			return err
		})
	})
	for _, id := range ids {
		j.known(id, &lockedError{id, err})
	}
	i, _ := j.failingIn(b)
	return i
}

// known notes that no record of an order can be made durable now.
func (j *batchJob) known(orderID string, why error) {
	if j.failing == nil {
		j.failing = make(map[string]error)
	}
	j.failing[orderID] = why
}

func (j *batchJob) failingIn(b *batch) (int, error) {
	if len(j.failing) == 0 {
		return -1, nil
	}
	for i := range b.items {
		if it := &b.items[i]; !it.held && j.failing[it.orderID] != nil {
			return i, j.failing[it.orderID]
		}
	}
	return -1, nil
}

// Alone implements Job. A record goes without the parked events that it releases, where these are the cause: they
// are the sweep's then. What the database refuses for its data is a dead letter. Every other record is held.
func (j *batchJob) Alone(ctx context.Context, class Failure, cause error) error {
	pr, b := j.projector, j.next(1)
	it := &b.items[0]
	known := j.failing[it.orderID] != nil
	if it.invalid == nil && it.orderID != "" && !known {
		err := pr.retrier.Briefly(ctx, func(ctx context.Context) error { return j.try(ctx, b, budget{}) })
		switch {
		case err == nil:
			j.log.Warn("applied a record without the parked events behind it, which the database does not take", "offset", it.rec.Offset, "order_id", it.orderID, "error", cause)
			return j.pass(1, nil)
		case final(err) || ctx.Err() != nil:
			return err
		}
		latest := pr.retrier.Classify(err)
		if latest.outage() || latest == Transient && class != Transient {
			return err
		}
		if latest == BadData {
			class = latest
		}
	}
	if class == BadData {
		err := j.blame(ctx, b, cause)
		if err == nil || final(err) || ctx.Err() != nil {
			return j.pass(1, err)
		}
		class, cause = pr.retrier.Classify(err), err
	}
	err := j.holdOne(ctx, b, j.batch.items[j.passed+1:], class, cause)
	delete(j.failing, it.orderID) // once the record is held, the order's later records join its queue without being tried
	if _, unproved := isOneOf[*NoProofError](err); unproved {
		j.log.Debug("nothing shows that one record is the cause", "offset", it.rec.Offset, "error", err)
	}
	return j.pass(1, err)
}

// blame makes a record that fails when it is tried alone a dead letter with the cause.
func (p *partition) blame(ctx context.Context, b *batch, cause error) error {
	it := &b.items[0]
	refused := *it
	refused.blamed = true
	refused.refuse(&DecodeError{
		Detail: blameDetail(cause), OrderID: it.env.OrderID, EventID: it.env.EventID, Version: it.env.Version,
	})
	one := &batch{items: []item{refused}, begin: b.begin, next: b.next, memory: b.memory}
	if err := p.projector.bounded(ctx, func(ctx context.Context) error { return p.apply(ctx, one, turnBudget()) }); err != nil {
		p.forget(b)
		return err
	}
	p.log.Error("the database refuses a record, also when it is tried alone: dead letter",
		"offset", it.rec.Offset, "order_id", it.env.OrderID, "event_id", it.env.EventID, "error", cause)
	p.projector.metrics.Blamed.Inc()
	return nil
}

func blameDetail(cause error) string {
	if panicked, ok := isOneOf[*panicError](cause); ok {
		return clip(fmt.Sprintf("panic while deciding: %v", panicked.value), 500)
	}
	return clip("the database refuses it: "+cause.Error(), 500)
}

// apply is one attempt at one batch: one transaction.
func (p *partition) apply(ctx context.Context, b *batch, drain budget) error {
	began := time.Now()
	t := &turn{group: p.key.Group, decoder: p.projector.cfg.Decoder, batch: b, older: p.older, budget: drain}
	var counts Counts
	var trip *BreakerTrip
	err := p.projector.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
		t.tx = tx
		mark, err := p.Fence(ctx, tx, b.begin)
		if err != nil {
			return err
		}
		t.mark = mark.NextOffset
		if err := substitutesOf(ctx, tx, p.key.TopicPartition, b); err != nil {
			return err
		}
		if err := p.join(ctx, tx, b, mark.Counts[Held]); err != nil {
			return err
		}
		if err := p.load(ctx, t); err != nil {
			return err
		}
		if err := t.run(ctx); err != nil {
			return err
		}
		open, err := p.holdJoined(ctx, tx, b, mark.NextOffset)
		if err != nil {
			return err
		}
		counts = b.counts(mark.NextOffset)
		if b.next <= mark.NextOffset {
			return nil // read again: everything was counted the first time
		}
		if err := tx.AdvanceWatermark(ctx, p.key, b.next, counts, 0); err != nil {
			return fmt.Errorf("advancing the watermark: %w", err)
		}
		if trip, err = p.projector.cfg.Control.JudgeHeld(ctx, tx, p.key.Group, open); trip != nil || err != nil {
			return err
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
	p.projector.drainSoon(t.unfinished())
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

// substitutesOf finds the orders of records that do not name one, but have a
// substitute that does.
func substitutesOf(ctx context.Context, tx Tx, log TopicPartition, b *batch) error {
	var offsets []int64
	for i := range b.items {
		if it := &b.items[i]; it.invalid != nil && it.invalid.Version == 0 {
			it.orderID = ""
			offsets = append(offsets, it.rec.Offset)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	substitutes, err := tx.SubstitutesAt(ctx, log, offsets)
	if err != nil {
		return fmt.Errorf("reading operators' substitutes: %w", err)
	}
	for _, d := range substitutes {
		if it := b.at(d.Offset); it != nil {
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
