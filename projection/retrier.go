package projection

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// RetrierConfig is what a Retrier is made of. All of it is required but Retries.
type RetrierConfig struct {
	Slots    int           // transactions at the same time
	Timeout  time.Duration // deadline of one transaction
	Base     time.Duration // first pause after a failure
	Cap      time.Duration // longest pause
	Classify func(error) Failure
	Hint     func(error) string     // what an operator can do, "" where nothing is known
	Retries  *prometheus.CounterVec // by class
}

// Retrier gives transactions a place and a deadline, repeats those that fail for
// reasons that heal, and remembers what holds partitions up. It is safe for concurrent use.
type Retrier struct {
	cfg   RetrierConfig
	slots chan struct{}

	mu       sync.Mutex
	troubles map[TopicPartition]*Trouble
}

// NewRetrier returns a retrier.
func NewRetrier(cfg RetrierConfig) *Retrier {
	return &Retrier{cfg: cfg, slots: make(chan struct{}, cfg.Slots), troubles: make(map[TopicPartition]*Trouble)}
}

// Troubles returns what holds partitions up now, in the order of the partitions.
func (r *Retrier) Troubles() []*Trouble {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Trouble, 0, len(r.troubles))
	for _, t := range r.troubles {
		snapshot := *t
		all = append(all, &snapshot)
	}
	slices.SortFunc(all, func(a, b *Trouble) int { return cmp.Compare(a.Partition, b.Partition) })
	return all
}

// Retry repeats an attempt until it succeeds, a *RewindError or *HaltError
// ends it, or ctx does.
func (r *Retrier) Retry(ctx context.Context, tries *Attempts, what string, attempt func(context.Context) error) error {
	for {
		err := r.Bounded(ctx, attempt)
		if err == nil || final(err) {
			tries.Over()
			return err
		}
		if err := tries.Pause(ctx, what, err); err != nil {
			return err
		}
	}
}

// Bounded gives one attempt a place among the transactions, and its deadline.
func (r *Retrier) Bounded(ctx context.Context, attempt func(context.Context) error) error {
	return r.within(ctx, r.cfg.Timeout, attempt)
}

// Briefly is Bounded with the deadline of a search: for attempts that other work waits for.
func (r *Retrier) Briefly(ctx context.Context, attempt func(context.Context) error) error {
	return r.within(ctx, min(r.cfg.Timeout, narrowTimeout), attempt)
}

func (r *Retrier) within(ctx context.Context, timeout time.Duration, attempt func(context.Context) error) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.slots }()
	attemptCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := attempt(attemptCtx)
	if err != nil && timedOut(ctx, attemptCtx) {
		return &deadlineError{after: timeout, cause: err}
	}
	return err
}

// Classify says what an error means for the work that met it.
func (r *Retrier) Classify(err error) Failure {
	if _, ok := isOneOf[*lockedError](err); ok {
		return Locked
	}
	class := r.cfg.Classify(err)
	if _, ok := isOneOf[*deadlineError](err); ok && !class.outage() {
		return TooSlow
	}
	return class
}

// deadlineError says that a transaction ended by its own deadline.
type deadlineError struct {
	after time.Duration
	cause error
}

func (e *deadlineError) Error() string {
	return fmt.Sprintf("no result within %s: %v", e.after, e.cause)
}
func (e *deadlineError) Unwrap() error { return e.cause }

func final(err error) bool {
	_, rewind := isOneOf[*RewindError](err)
	_, halt := isOneOf[*HaltError](err)
	_, end := isOneOf[*endError](err)
	return rewind || halt || end
}

// Attempts are those at one piece of a partition's work.
type Attempts struct {
	retrier  *Retrier
	log      *slog.Logger
	tp       TopicPartition
	wait     *backoff.ExponentialBackOff
	failures int // since the last success
	limit    int // how many failures end the work; 0 for no end
}

// Attempts begins to count those at one piece of a partition's work.
func (r *Retrier) Attempts(log *slog.Logger, tp TopicPartition) *Attempts {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = r.cfg.Base
	b.Multiplier = 2
	b.MaxInterval = r.cfg.Cap
	b.Reset()
	return &Attempts{retrier: r, log: log, tp: tp, wait: b}
}

// Limited is Attempts of which so many may fail: the last failure is then returned.
func (r *Retrier) Limited(log *slog.Logger, limit int) *Attempts {
	a := r.Attempts(log, TopicPartition{})
	a.limit = limit
	return a
}

// Over ends the partition's trouble, if there was any.
func (a *Attempts) Over() {
	if a.failures > 0 {
		a.failures = 0
		a.wait.Reset()
	}
	r := a.retrier
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.troubles, a.tp)
}

// Pause waits before the next attempt, and says why there is one. Its error is ctx's cause, or err itself when it was
// the last that is allowed.
func (a *Attempts) Pause(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		a.Over()
		return context.Cause(ctx)
	}
	r := a.retrier
	a.failures++
	if a.limit > 0 && a.failures >= a.limit {
		return err
	}
	class := r.Classify(err)
	r.count(class)
	delay := a.wait.NextBackOff()
	if class == LostRace {
		delay /= 10 // nothing is wrong: decide again from a fresh read
	}
	level := slog.LevelWarn
	if class.NeedsOperator() {
		level = slog.LevelError
	}
	attrs := []any{"class", class.String(), "in", delay.String(), "error", err}
	advice := r.cfg.Hint(err)
	if advice != "" {
		attrs = append(attrs, "hint", advice)
	}
	a.log.Log(ctx, level, what+" failed, trying again", attrs...)
	a.note(what, class, err, advice)
	select {
	case <-ctx.Done():
		a.Over()
		return context.Cause(ctx)
	case <-time.After(delay):
		return nil
	}
}

// narrow notes that a failure leads to smaller transactions.
func (a *Attempts) narrow(ctx context.Context, what string, class Failure, err error, first bool) {
	a.retrier.count(class)
	a.note(what, class, err, a.retrier.cfg.Hint(err))
	if _, undrained := isOneOf[*errUndrained](err); first && !undrained {
		a.log.Log(ctx, slog.LevelWarn, what+" failed, looking for the record that is the cause", "class", class.String(), "error", err)
	}
}

func (r *Retrier) count(class Failure) {
	if r.cfg.Retries != nil {
		r.cfg.Retries.WithLabelValues(class.String()).Inc()
	}
}

func (a *Attempts) note(what string, class Failure, err error, advice string) {
	if a.limit > 0 {
		return // whoever limits the tries is told of the failure
	}
	r := a.retrier
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.troubles[a.tp]
	if t == nil {
		t = &Trouble{TopicPartition: a.tp, Since: time.Now()}
		r.troubles[a.tp] = t
	}
	t.What, t.Class, t.Err, t.Advice = what, class, err, advice
	t.Attempts++
}
