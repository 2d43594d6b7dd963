package effects

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// Handle implements projection.PartitionHandler.
func (p *partition[T]) Handle(ctx context.Context, records []projection.Record) error {
	if len(records) == 0 {
		return nil
	}
	p.items = p.items[:0]
	for i := range records {
		it := p.consumer.newItem(&records[i])
		it.event.Repeated = records[i].Offset < p.known
		it.event.New = records[i].Offset >= p.logEnd
		p.items = append(p.items, it)
	}
	defer clear(p.items) // they hold on to the records
	retrier := p.consumer.retrier
	return retrier.Run(ctx, retrier.Attempts(p.log, p.Key().TopicPartition), &batchJob[T]{partition: p, left: p.items, seen: older{}})
}

// Close implements projection.PartitionHandler.
func (p *partition[T]) Close() {}

// batchJob makes the records of a batch durable. A piece is a record.
type batchJob[T Tx] struct {
	*partition[T]
	left []item
	seen older
}

// Left implements projection.Job.
func (j *batchJob[T]) Left() int { return len(j.left) }

// What implements projection.Job.
func (j *batchJob[T]) What(n int) string {
	return fmt.Sprintf("applying offsets %d to %d", j.left[0].event.Record.Offset, j.left[n-1].event.Record.Offset)
}

// Try implements projection.Job.
func (j *batchJob[T]) Try(ctx context.Context, n int) error {
	err := j.apply(ctx, j.left[:n], j.seen)
	if _, rewind := isOneOf[*projection.RewindError](err); rewind {
		j.consumer.metrics.Rewinds.Inc()
	}
	return j.pass(n, err)
}

func (j *batchJob[T]) pass(n int, err error) error {
	if err == nil {
		j.left = j.left[n:]
	}
	return err
}

// Answer implements projection.Job.
func (j *batchJob[T]) Answer(ctx context.Context, err error) (bool, error) {
	return j.consumer.answer(ctx, err, j.seen)
}

// Suspect implements projection.Job.
func (j *batchJob[T]) Suspect(_ context.Context, n int, _ projection.Failure, err error) int {
	return suspect(j.left[:n], err)
}

func suspect(items []item, err error) int {
	failed, ok := isOneOf[*failedError](err)
	if !ok {
		return -1
	}
	return slices.IndexFunc(items, func(it item) bool { return it.event.Record == failed.record })
}

// Alone implements projection.Job: what the database or the effect refuses for its data is a dead letter, and every
// other record is held.
func (j *batchJob[T]) Alone(ctx context.Context, class projection.Failure, cause error) error {
	c, it := j.consumer, &j.left[0]
	rec := it.event.Record
	if class == projection.BadData && !it.blamed {
		j.log.Error("a record is refused, also when it is tried alone: dead letter", "offset", rec.Offset,
			"order_id", it.event.OrderID, "event_id", it.event.EventID, "error", cause, "stack", stackOf(cause))
		it.blame(cause)
		c.metrics.Blamed.Inc()
		cause = c.retrier.Bounded(ctx, func(ctx context.Context) error { return j.apply(ctx, j.left[:1], j.seen) })
		if cause == nil || ctx.Err() != nil {
			return j.pass(1, cause)
		}
		class = c.retrier.Classify(cause)
	}
	h := it.hold(cause.Error(), class.String())
	if class.Counts() {
		h.Counted = 1
	}
	h.Failures = 1
	var counts projection.Counts
	var trip *projection.BreakerTrip
	err := c.retrier.Bounded(ctx, func(ctx context.Context) error {
		return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) (err error) {
			counts, trip, err = projection.HoldAlone(ctx, tx, &j.Progress, c.cfg.Control, h, j.Position(), rec.Offset+1, j.trial(tx, it), j.rivals(tx, it))
			return err
		})
	})
	if err != nil {
		return err
	}
	j.left = j.left[1:]
	j.advanced(rec.Offset+1, trip)
	c.metrics.Count(counts, 1)
	j.log.Error("the effect of a record cannot be made while others can: the record is held", "offset", rec.Offset, "order_id", it.event.OrderID,
		"event_id", it.event.EventID, "class", class.String(), "error", cause, "hint", "orderprojector held list; the record is tried again by itself")
	return nil
}

// trial makes the effect of one record.
func (j *batchJob[T]) trial(tx T, it *item) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := j.consumer.decide(ctx, tx, []*item{it}, j.seen); err != nil {
			return err
		}
		return j.consumer.keep(ctx, tx, []*item{it})
	}
}

// rivals are trials with records of other orders.
func (j *batchJob[T]) rivals(tx T, it *item) []func(context.Context) error {
	var trials []func(context.Context) error
	for i := range j.left[1:] {
		other := j.left[i+1]
		if !other.wanted || other.event.OrderID == it.event.OrderID {
			continue
		}
		trial := j.trial(tx, &other)
		trials = append(trials, func(ctx context.Context) error {
			if err := trial(ctx); err != nil {
				return err
			}
			if other.effect != effectApplied {
				return fmt.Errorf("the record at offset %d has no effect", other.event.Record.Offset)
			}
			return nil
		})
	}
	return trials
}

// hold makes a held record of an item.
func (it *item) hold(cause, class string) *projection.HeldRecord {
	l := it.letter("")
	return &projection.HeldRecord{
		Record: l.Record, OrderID: l.OrderID, EventID: l.EventID, Version: l.Version, Type: l.Type, Cause: fmt.Sprintf("%.500s", cause), Class: class,
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

// apply is one attempt at some records: one transaction.
func (p *partition[T]) apply(ctx context.Context, records []item, seen older) error {
	c := p.consumer
	began := time.Now()
	next := records[len(records)-1].event.Record.Offset + 1
	var counts projection.Counts
	var trip *projection.BreakerTrip
	err := c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
		mark, err := p.Fence(ctx, tx, p.Position())
		if err != nil {
			return err
		}
		items := make([]*item, 0, len(records))
		for i := range records {
			it := &records[i]
			it.again = it.event.Record.Offset < mark.NextOffset
			items = append(items, it)
		}
		tried, joined, err := p.join(ctx, tx, items, mark.Counts[projection.Held])
		if err != nil {
			return err
		}
		if err := c.decide(ctx, tx, tried, seen); err != nil {
			return err
		}
		// A record below the watermark has its place already, and makes no new letter.
		again := func(it *item) bool { return it.event.Record.Control || it.again }
		firsts := slices.DeleteFunc(items, again)
		if err := c.keep(ctx, tx, firsts); err != nil {
			return err
		}
		open, err := c.hold(ctx, tx, slices.DeleteFunc(joined, again))
		if err != nil {
			return err
		}
		counts = projection.Counts{}
		for _, it := range firsts {
			counts[it.outcome]++
		}
		if next <= mark.NextOffset {
			return nil // read again: everything was counted the first time
		}
		if err := tx.AdvanceWatermark(ctx, p.Key(), next, counts, 0); err != nil {
			return fmt.Errorf("advancing the watermark: %w", err)
		}
		if trip, err = c.cfg.Control.JudgeHeld(ctx, tx, c.cfg.Group, open); trip != nil || err != nil {
			return err
		}
		trip, err = c.cfg.Control.Judge(ctx, tx, p.Key(), counts, func(maxOrders int64) []projection.Refusals {
			return refusals(firsts, maxOrders)
		})
		return err
	})
	if err != nil {
		return err
	}
	p.advanced(next, trip)
	p.observe(records, counts, began)
	return nil
}

func (p *partition[T]) advanced(next int64, trip *projection.BreakerTrip) {
	if trip != nil {
		p.consumer.cfg.Control.Tripped(*trip)
	}
	p.Advanced(next)
	p.consumer.reach(&p.Progress)
}

// join tells the records that are tried from those whose order has held records: these wait behind them.
func (p *partition[T]) join(ctx context.Context, tx T, items []*item, held int64) (tried, joined []*item, err error) {
	if held == 0 {
		return items, nil, nil
	}
	ids := make([]string, 0, len(items))
	for _, it := range items {
		if it.wanted {
			ids = append(ids, it.event.OrderID)
		}
	}
	orders, err := tx.HeldOrders(ctx, p.Key(), ids)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for held records: %w", err)
	}
	for _, it := range items {
		if it.wanted && orders[it.event.OrderID] {
			it.outcome, it.detail, it.effect = projection.Held, "", ""
			joined = append(joined, it)
		} else {
			tried = append(tried, it)
		}
	}
	return tried, joined, nil
}

// hold keeps the records that join their orders' queues. It returns how many records the group holds then, 0 where none joined.
func (c *Consumer[T]) hold(ctx context.Context, tx T, items []*item) (open int64, err error) {
	if len(items) == 0 {
		return 0, nil
	}
	records := make([]*projection.HeldRecord, len(items))
	for i, it := range items {
		records[i] = it.hold("it waits behind an earlier held record of its order", projection.HeldQueued)
	}
	if open, err = tx.Hold(ctx, c.cfg.Group, records); err != nil {
		return 0, fmt.Errorf("holding records: %w", err)
	}
	return open, nil
}

// keep writes the dead letters of refused records.
func (c *Consumer[T]) keep(ctx context.Context, tx T, items []*item) error {
	var letters []*projection.DeadLetter
	for _, it := range items {
		if it.outcome.DeadLetters() {
			letters = append(letters, it.letter(c.cfg.Group))
		}
	}
	if len(letters) > 0 {
		if err := tx.AddLetters(ctx, letters); err != nil {
			return fmt.Errorf("writing dead letters: %w", err)
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

func (p *partition[T]) observe(records []item, counts projection.Counts, began time.Time) {
	m := p.consumer.metrics
	visible := int64(0)
	var applied []*Event
	for i := range records {
		it := &records[i]
		if !it.event.Record.Control {
			visible++
		}
		if it.effect == effectApplied {
			applied = append(applied, &it.event)
		}
	}
	m.Count(counts, visible)
	m.ApplyDuration.Observe(time.Since(began).Seconds())
	m.BatchRecords.Observe(float64(len(records)))
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
		p.advanced(to, nil)
	}
	return err
}
