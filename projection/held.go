package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Rules of held records.
const (
	// MaxHeldFailures is how many failures that count make a held record a dead letter, once it is MinHeldAge old.
	MaxHeldFailures = 16
	MinHeldAge      = time.Hour

	heldStep    = 200             // records tried in one look
	heldTimeout = 5 * time.Second // of one attempt
	heldRivals  = 3               // other records with which is tried to prove that writing works
)

// HeldPolicy says when held records are tried again. Zero values mean the defaults.
type HeldPolicy struct {
	Interval time.Duration // between looks at what is due (1 s)
	Base     time.Duration // first pause before a record is tried again (1 s)
	Cap      time.Duration // longest pause (30 s)
	MinAge   time.Duration // before a record can become a dead letter (MinHeldAge)
}

func (p HeldPolicy) withDefaults() HeldPolicy {
	p.Interval = cmp.Or(p.Interval, time.Second)
	p.Base = cmp.Or(p.Base, time.Second)
	p.Cap = cmp.Or(p.Cap, 30*time.Second)
	p.MinAge = cmp.Or(p.MinAge, MinHeldAge)
	return p
}

// pause grows with the number of failures. It is random in part, so that records with one cause do not come together.
func (p HeldPolicy) pause(failures int) time.Duration {
	pause := p.Base
	for range failures - 1 {
		if pause *= 2; pause >= p.Cap {
			break
		}
	}
	pause = min(pause, p.Cap)
	return pause + rand.N(pause/4+1)
}

// HeldRecord is a record that could not be made durable while others could.
type HeldRecord struct {
	ID      int64 // 0 until stored
	Record  Record
	OrderID string // the order whose queue it is in; empty for a record that names none
	EventID string
	Version int64 // that it claims, 0 where unknown
	Type    string
	Cause   string // of the latest failure
	Class   string // of the latest failure, or HeldQueued
	// Failures is how often it failed, Counted how many of them count: those of the record itself.
	Failures, Counted int
	HeldAt            time.Time
}

// HeldQueued is the class of a record that was not tried: it waits behind an earlier record of its order.
const HeldQueued = "queued"

// Key names the watermark that counts the record.
func (h *HeldRecord) Key(group string) WatermarkKey {
	return WatermarkKey{Group: group, TopicPartition: h.Record.TopicPartition}
}

// HeldTx is the part of a transaction that holds records, and that works them off.
//
// The records of one order in one log are a queue, in offset order. Only the head is tried.
type HeldTx interface {
	ProgressTx
	RefusalTx
	AddLetters(ctx context.Context, letters []*DeadLetter) error

	// HeldOrders returns which of these orders have held records in the log.
	HeldOrders(ctx context.Context, key WatermarkKey, orderIDs []string) (map[string]bool, error)
	// Hold keeps records. One that is held already stays as it is. It returns how many the group holds now.
	Hold(ctx context.Context, group string, records []*HeldRecord) (open int64, err error)
	// TakeHeld locks the head that is due first, of those that nobody else has locked; nil when there is none.
	TakeHeld(ctx context.Context, group string) (*HeldRecord, error)
	// LockHeld locks a held record; nil when there is none of that ID.
	LockHeld(ctx context.Context, group string, id int64) (*HeldRecord, error)
	// Postpone notes one more failure of a held record, and when it is due again.
	Postpone(ctx context.Context, h *HeldRecord, pause time.Duration) error
	// Release forgets a held record.
	Release(ctx context.Context, h *HeldRecord) error

	// Trial runs work and undoes what work did. It returns work's error. Each statement has a second.
	Trial(ctx context.Context, work func(context.Context) error) error
	// TouchOther updates, without changing it, what the group has written for another order: an order without held records, of those
	// the one at place nth. It passes over what is locked, and reports false where there is none.
	TouchOther(ctx context.Context, group, orderID string, nth int) (touched bool, err error)
	// LockedElsewhere returns which of these orders another transaction has locked.
	LockedElsewhere(ctx context.Context, orderIDs []string) ([]string, error)
	// StoredVersion returns the version of an order's row without reading the rest of the row, 0 without a row.
	StoredVersion(ctx context.Context, orderID string) (int64, error)
}

// NoProofError says that nothing else can be made durable either, or that there is nothing else: the failure is not
// known to be that of one record.
type NoProofError struct{ Err error }

func (e *NoProofError) Error() string {
	return "nothing proves that the record is the cause: " + e.Err.Error()
}

var errPassed = errors.New("it can be written by now")

var errNoOther = errors.New("there is no other record to compare with")

func (e *NoProofError) Unwrap() error { return e.Err }

// Prove returns nil when the database takes a change of another order than the one given: what fails with that
// order's record alone is not an outage. Where nothing is stored for another order yet, others are tried: changes that are
// undone. The error is a *NoProofError otherwise.
func Prove(ctx context.Context, tx HeldTx, group, orderID string, others []func(context.Context) error) error {
	trials := make([]func(context.Context) error, 0, heldRivals+len(others))
	for nth := range heldRivals {
		trials = append(trials, func(ctx context.Context) error {
			touched, err := tx.TouchOther(ctx, group, orderID, nth)
			if err == nil && !touched {
				err = errNoOther
			}
			return err
		})
	}
	last := errNoOther
	for _, trial := range append(trials, others...) {
		err := tx.Trial(ctx, trial)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return &NoProofError{err}
		}
		if !errors.Is(err, errNoOther) {
			last = err
		}
	}
	return &NoProofError{last}
}

// HoldAlone holds the record behind which a log is stuck, in a transaction of its own. It proves first that other
// records can be made durable and that the record itself still cannot: an outage may have ended since it failed. It takes
// the watermark's lock last, so that nothing waits behind the proof. It returns the breaker's trip when there are too many.
func HoldAlone(ctx context.Context, tx HeldTx, p *Progress, control *Control, h *HeldRecord, begin, next int64,
	itself func(context.Context) error, others []func(context.Context) error,
) (Counts, *BreakerTrip, error) {
	key := p.Key()
	if err := Prove(ctx, tx, key.Group, h.OrderID, others); err != nil {
		return Counts{}, nil, err
	}
	if err := tx.Trial(ctx, itself); err == nil {
		return Counts{}, nil, &NoProofError{errPassed}
	}
	mark, err := p.Fence(ctx, tx, begin)
	if err != nil || h.Record.Offset < mark.NextOffset { // read again: it has its place already
		return Counts{}, nil, err
	}
	open, err := tx.Hold(ctx, key.Group, []*HeldRecord{h})
	if err != nil {
		return Counts{}, nil, fmt.Errorf("holding a record: %w", err)
	}
	counts := Counts{Held: 1}
	if err := tx.AdvanceWatermark(ctx, key, next, counts, 0); err != nil {
		return counts, nil, fmt.Errorf("advancing the watermark: %w", err)
	}
	if trip, err := control.JudgeHeld(ctx, tx, key.Group, open); trip != nil || err != nil {
		return counts, trip, err
	}
	trip, err := control.Judge(ctx, tx, key, counts, func(int64) []Refusals {
		return []Refusals{{Reason: Held, Letters: 1, OrderIDs: []string{h.OrderID}}}
	})
	return counts, trip, err
}

// HeldConfig is what a HeldWorker is made of. All of it is required but Control, Settled and what is zero in Policy.
type HeldConfig[T HeldTx] struct {
	Group    string
	Policy   HeldPolicy
	InTx     func(context.Context, func(context.Context, T) error) error
	Timeout  time.Duration // deadline of one attempt
	Classify func(error) Failure
	Hint     func(error) string
	Control  *Control
	Logger   *slog.Logger
	Metrics  *MemberMetrics
	// Decide decides a held record, writes what comes of it, and returns the outcome. It is called again after Answer
	// has read what its error asks for.
	Decide func(ctx context.Context, tx T, h *HeldRecord) (Outcome, error)
	Answer func(ctx context.Context, err error) (asked bool, failed error)
	// Blocks says that a letter holds its order back while its version is the next one.
	Blocks bool
	// Settled is told of each record that left the queue, behind the commit.
	Settled func()
}

// HeldWorker tries held records again. Use it from one goroutine at a time.
type HeldWorker[T HeldTx] struct {
	cfg     HeldConfig[T]
	retrier *Retrier // of its own: an attempt that hangs takes no place from the members' batches
}

// NewHeldWorker returns a worker; Run makes it work.
func NewHeldWorker[T HeldTx](cfg HeldConfig[T]) *HeldWorker[T] {
	cfg.Policy = cfg.Policy.withDefaults()
	return &HeldWorker[T]{cfg, NewRetrier(RetrierConfig{
		Slots: 1, Timeout: min(cfg.Timeout, heldTimeout), Base: cfg.Policy.Base, Cap: cfg.Policy.Cap, Classify: cfg.Classify, Hint: cfg.Hint,
	})}
}

// Run tries what is due until ctx ends. Every member runs it; a record is one member's at a time.
func (w *HeldWorker[T]) Run(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.Policy.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if w.cfg.Control.holdsBack() != nil {
			continue
		}
		if _, err := w.Work(ctx); err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("trying held records again failed; the next look tries once more", "error", err, "hint", w.cfg.Hint(err))
		}
	}
}

// Work tries what is due now, a bounded number of records, and returns how many were tried.
func (w *HeldWorker[T]) Work(ctx context.Context) (tried int, err error) {
	for range heldStep {
		job := &heldJob[T]{worker: w, left: 1}
		if err := w.retrier.Run(ctx, w.retrier.Limited(w.cfg.Logger, 1), job); err != nil {
			return tried, err
		}
		if job.taken == nil {
			return tried, nil
		}
		tried++
	}
	return tried, nil
}

// heldJob tries one held record: one piece.
type heldJob[T HeldTx] struct {
	worker *HeldWorker[T]
	taken  *HeldRecord
	left   int
}

func (j *heldJob[T]) What(int) string { return "trying a held record again" }
func (j *heldJob[T]) Left() int       { return j.left }
func (j *heldJob[T]) Suspect(context.Context, int, Failure, error) int {
	return 0
}

func (j *heldJob[T]) Answer(ctx context.Context, err error) (bool, error) {
	return j.worker.cfg.Answer(ctx, err)
}

// Try decides the record. The watermark, which members lock first, is locked last: their batches do not wait for
// a record that hangs.
func (j *heldJob[T]) Try(ctx context.Context, _ int) error {
	cfg := &j.worker.cfg
	var outcome Outcome
	err := cfg.InTx(ctx, func(ctx context.Context, tx T) (err error) {
		if j.taken, err = tx.TakeHeld(ctx, cfg.Group); err != nil || j.taken == nil {
			return err
		}
		// A row that is locked is not waited for: other held records can be tried meanwhile.
		locked, err := tx.LockedElsewhere(ctx, []string{j.taken.OrderID})
		if err != nil {
			return fmt.Errorf("looking for locks: %w", err)
		}
		if len(locked) > 0 {
			return &lockedError{orderID: j.taken.OrderID}
		}
		if outcome, err = cfg.Decide(ctx, tx, j.taken); err != nil {
			return err
		}
		return leave(ctx, tx, cfg.Group, j.taken, outcome)
	})
	if err == nil {
		j.left = 0
		if j.taken != nil {
			j.settled(j.taken, outcome, heldDone)
		}
	}
	return err
}

// What may come of a held record that is tried again.
const (
	heldDone  = "done"
	heldAgain = "failed"
	heldDead  = "dead_letter"
)

func (j *heldJob[T]) settled(h *HeldRecord, outcome Outcome, result string) {
	cfg := &j.worker.cfg
	cfg.Metrics.Events.WithLabelValues(outcome.String()).Inc()
	cfg.Metrics.Held.WithLabelValues(result).Inc()
	cfg.Logger.Info("a held record left the queue", "topic", h.Record.Topic, "partition", h.Record.Partition, "offset", h.Record.Offset,
		"order_id", h.OrderID, "outcome", outcome.String(), "held_for", time.Since(h.HeldAt).Round(time.Second).String())
	if cfg.Settled != nil {
		cfg.Settled()
	}
}

// leave takes a record out of the queue, and counts its outcome.
func leave(ctx context.Context, tx HeldTx, group string, h *HeldRecord, outcome Outcome) error {
	if err := tx.Release(ctx, h); err != nil {
		return fmt.Errorf("releasing a held record: %w", err)
	}
	counts := Counts{Held: -1}
	counts[outcome]++
	if err := tx.AdvanceWatermark(ctx, h.Key(group), 0, counts, 0); err != nil {
		return fmt.Errorf("counting a held record: %w", err)
	}
	return nil
}

// Alone postpones the record, or makes it a dead letter when it failed too often.
func (j *heldJob[T]) Alone(ctx context.Context, class Failure, cause error) error {
	if j.taken == nil {
		return cause
	}
	cfg, id := &j.worker.cfg, j.taken.ID
	var settled *HeldRecord
	err := j.worker.retrier.Bounded(ctx, func(ctx context.Context) error {
		settled = nil
		return cfg.InTx(ctx, func(ctx context.Context, tx T) error {
			h, err := tx.LockHeld(ctx, cfg.Group, id)
			if err != nil || h == nil {
				return err
			}
			if err := Prove(ctx, tx, cfg.Group, h.OrderID, nil); err != nil {
				return err
			}
			h.Cause, h.Class, h.Failures = clip(cause.Error(), 500), class.String(), h.Failures+1
			if class.Counts() {
				h.Counted++
			}
			if class != BadData && (h.Counted < MaxHeldFailures || time.Since(h.HeldAt) < cfg.Policy.MinAge) {
				return tx.Postpone(ctx, h, cfg.Policy.pause(h.Failures))
			}
			settled = h
			detail := blameDetail(cause)
			if class != BadData {
				detail = clip(fmt.Sprintf("it failed %d times while others succeeded: %v", h.Counted, cause), 500)
			}
			_, err = GiveUp(ctx, tx, cfg.Group, h, detail, cfg.Blocks)
			return err
		})
	})
	if unproved, ok := isOneOf[*NoProofError](err); ok {
		return fmt.Errorf("%w (%w)", cause, unproved)
	}
	if err != nil {
		return err
	}
	j.left = 0
	if settled == nil {
		cfg.Metrics.Held.WithLabelValues(heldAgain).Inc()
		return nil
	}
	cfg.Logger.Error("a held record is a dead letter now", "order_id", settled.OrderID, "offset", settled.Record.Offset,
		"failures", settled.Failures, "error", cause)
	j.settled(settled, Invalid, heldDead)
	return nil
}

// GiveUp makes a held record a dead letter. It writes neither the order's row nor anything else of the order, as
// that may be what fails.
func GiveUp(ctx context.Context, tx HeldTx, group string, h *HeldRecord, detail string, blocks bool) (*DeadLetter, error) {
	letter := &DeadLetter{
		Group: group, Record: h.Record, OrderID: h.OrderID, Version: h.Version, EventID: h.EventID, Type: h.Type,
		Reason: Invalid, Detail: detail, WasHeld: true,
	}
	if blocks && h.Version > 0 {
		version, err := tx.StoredVersion(ctx, h.OrderID)
		if err != nil {
			return nil, fmt.Errorf("reading the order's version: %w", err)
		}
		letter.Blocks = h.Version > version
	}
	if err := tx.AddLetters(ctx, []*DeadLetter{letter}); err != nil {
		return nil, fmt.Errorf("writing a dead letter: %w", err)
	}
	return letter, leave(ctx, tx, group, h, Invalid)
}
