package effects

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection"
)

// item is one record on its way to an outcome.
type item struct {
	event   Event
	invalid *projection.DecodeError
	wanted  bool
	again   bool // read again on purpose: the policy decides
	outcome projection.Outcome
	detail  string // why, for a dead letter
	effect  string // what became of it, once it is consumed
	blamed  bool
}

// newItem decodes a record.
func (c *Consumer[T]) newItem(rec *projection.Record) item {
	it := item{event: Event{Record: rec}}
	switch {
	case rec.Control:
		return it
	case rec.Value == nil:
		it.outcome = projection.Ignored
		return it
	}
	env, invalid := projection.DecodeRecord(c.cfg.Decoder, rec)
	if invalid != nil {
		it.refuse(invalid)
		return it
	}
	it.event.Envelope = env
	name, _ := projection.SplitType(env.Type)
	switch {
	case !c.cfg.Effect.Wants(name):
		it.outcome = projection.Ignored
	case env.Event == nil:
		it.outcome = projection.Unsupported
		it.detail = fmt.Sprintf("unknown schema version: %.60q", env.Type)
	default:
		it.wanted = true
	}
	return it
}

// refuse makes the record an invalid one.
func (it *item) refuse(why *projection.DecodeError) {
	it.invalid, it.outcome, it.detail, it.wanted = why, projection.Invalid, why.Detail, false
	it.effect = ""
}

// letter is the dead letter of a refused record. It blocks nothing: the order's other events
// do not wait for it.
func (it *item) letter(group string) *projection.DeadLetter {
	env := &it.event.Envelope
	l := &projection.DeadLetter{
		Group: group, Record: *it.event.Record, OrderID: env.OrderID, Version: env.Version, EventID: env.EventID, Type: env.Type,
		Reason: it.outcome, Detail: it.detail,
	}
	if it.invalid != nil {
		l.OrderID, l.Version, l.EventID = it.invalid.OrderID, it.invalid.Version, it.invalid.EventID
	}
	if key := string(it.event.Record.Key); l.OrderID == "" && utf8.ValidString(key) && !strings.Contains(key, "\x00") && len(key) <= projection.MaxIDBytes {
		l.OrderID = key // a key with bytes left out would name another order
	}
	return l
}

// place names a record.
type place struct {
	projection.TopicPartition
	offset int64
}

// olderNeeded asks for records to be read again before the batch is tried once more.
type olderNeeded struct{ places []place }

func (e *olderNeeded) Error() string { return "older records are needed to decide" }

// older are records that were read again, by place; nil for one that is gone.
type older map[place]*projection.Envelope

// decide finds out what is new among items, has it dealt with, and notes it as consumed. Letters are left to
// the caller. An event whose effect fails makes a *failedError.
func (c *Consumer[T]) decide(ctx context.Context, tx T, items []*item, seen older) error {
	wanted := make([]*item, 0, len(items))
	ids := make([]string, 0, len(items))
	for _, it := range items {
		if it.wanted {
			// A transaction that is tried again begins anew.
			it.outcome, it.detail, it.effect = 0, "", ""
			wanted, ids = append(wanted, it), append(ids, it.event.EventID)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	name := c.cfg.Effect.Name()
	known, err := tx.Consumed(ctx, name, ids)
	if err != nil {
		return fmt.Errorf("reading consumed events: %w", err)
	}
	inBatch := make(map[string]*item)
	var needed []place
	// An event ID that comes twice is decided in the next round, when it is known what became of the first.
	for len(wanted) > 0 {
		var round, later []*item
		taken := make(map[string]bool, len(wanted))
		for _, it := range wanted {
			id := it.event.EventID
			if prior, consumed := known[id]; consumed {
				if at := it.compare(prior, inBatch[id], seen); at != nil {
					needed = append(needed, *at)
				}
				continue
			}
			if taken[id] {
				later = append(later, it)
				continue
			}
			taken[id] = true
			round = append(round, it)
		}
		if len(needed) > 0 {
			return &olderNeeded{needed}
		}
		if err := c.consume(ctx, tx, round); err != nil {
			return err
		}
		for _, it := range round {
			if it.effect != "" {
				known[it.event.EventID], inBatch[it.event.EventID] = it.consumed(), it
			}
		}
		wanted = later
	}
	return nil
}

// compare decides an event whose ID is consumed already. It returns the record that it has to be compared with,
// when nobody has read that yet.
func (it *item) compare(prior Consumed, first *item, seen older) *place {
	env := &it.event.Envelope
	it.outcome = projection.Duplicate
	at := place{prior.TopicPartition, prior.Offset}
	where := fmt.Sprintf("at %s offset %d", prior.TopicPartition, prior.Offset)
	switch {
	case prior.Digest == env.Digest:
		return nil
	case prior.OrderID != env.OrderID:
		it.conflict("event ID %.60q is that of an event of order %.60q, %s, and here of order %.60q", env.EventID, prior.OrderID, where, env.OrderID)
		return nil
	}
	var before *projection.Envelope
	if first != nil {
		before = &first.event.Envelope
	} else {
		var read bool
		if before, read = seen[at]; !read {
			return &at
		}
	}
	switch {
	case before == nil || before.EventID != env.EventID:
		it.conflict("event ID %.60q was consumed with other bytes, %s, and that record is gone, so they cannot be compared", env.EventID, where)
	case !projection.SameEvent(before, env):
		it.conflict("event ID %.60q was consumed with another content, %s", env.EventID, where)
	}
	return nil
}

func (it *item) conflict(format string, args ...any) {
	it.outcome, it.detail = projection.Conflict, fmt.Sprintf(format, args...)
}

func (it *item) consumed() Consumed {
	return Consumed{
		EventID: it.event.EventID, OrderID: it.event.OrderID, Digest: it.event.Digest, Effect: it.effect,
		TopicPartition: it.event.Record.TopicPartition, Offset: it.event.Record.Offset,
	}
}

// consume has the effects of events made whose IDs are new, and notes them as consumed.
func (c *Consumer[T]) consume(ctx context.Context, tx T, items []*item) error {
	var first, again []*item
	for _, it := range items {
		if it.again && c.cfg.Effect.Policy() == Suppress {
			again = append(again, it)
		} else {
			first = append(first, it)
		}
	}
	if err := c.run(ctx, tx, first, effectApplied, c.cfg.Effect.Apply); err != nil {
		return err
	}
	if len(again) > 0 {
		suppressor := c.cfg.Effect.(Suppressor[T]) // New has checked it
		if err := c.run(ctx, tx, again, effectSuppressed, suppressor.Suppress); err != nil {
			return err
		}
	}
	var consumed []Consumed
	for _, it := range items {
		if it.effect != "" {
			consumed = append(consumed, it.consumed())
		}
	}
	if len(consumed) == 0 {
		return nil
	}
	added, err := tx.AddConsumed(ctx, c.cfg.Effect.Name(), consumed)
	if err != nil {
		return fmt.Errorf("noting consumed events: %w", err)
	}
	if added != len(consumed) {
		return LostRace("noting consumed events")
	}
	return nil
}

func (c *Consumer[T]) run(ctx context.Context, tx T, items []*item, effect string, apply func(context.Context, T, []*Event) ([]Verdict, error)) (err error) {
	if len(items) == 0 {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	events := make([]*Event, len(items))
	for i, it := range items {
		events[i] = &it.event
	}
	verdicts, err := apply(ctx, tx, events)
	if err != nil {
		return err
	}
	if len(verdicts) != len(items) {
		return &panicError{value: fmt.Sprintf("%d verdicts on %d events", len(verdicts), len(items))}
	}
	for i, it := range items {
		v := verdicts[i]
		it.outcome, it.detail = v.Outcome, v.Detail
		switch {
		case v.Err != nil:
			return &failedError{record: it.event.Record, err: v.Err}
		case v.Outcome == projection.Applied:
			it.effect = effect
		case v.Outcome == projection.Duplicate:
			it.effect = effectDuplicate
		case !v.Outcome.DeadLetters():
			return &panicError{value: fmt.Sprintf("the verdict %s is none that an effect can give", v.Outcome)}
		}
	}
	return nil
}

// readOlder reads records again that events have to be compared with.
func (c *Consumer[T]) readOlder(ctx context.Context, needed *olderNeeded, into older) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.BatchTimeout)
	defer cancel()
	for _, at := range needed.places { // they are rare
		if _, read := into[at]; read {
			continue
		}
		var found *projection.Envelope
		err := c.cfg.Older.ReadRecords(ctx, at.TopicPartition, []int64{at.offset}, func(rec projection.Record) {
			if rec.Value == nil {
				return
			}
			if env, invalid := projection.DecodeRecord(c.cfg.Decoder, &rec); invalid == nil {
				found = &env
			}
		})
		if _, unreadable := isOneOf[*projection.UnreadableError](err); err != nil && !unreadable { // as good as gone
			return fmt.Errorf("reading offset %d of %s again: %w", at.offset, at.TopicPartition, err)
		}
		into[at] = found
	}
	return nil
}

func isOneOf[E error](err error) (E, bool) {
	var target E
	ok := errors.As(err, &target)
	return target, ok
}
