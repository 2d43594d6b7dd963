package effects

import (
	"context"
	"errors"

	"github.com/orderprojector/orderprojector/projection"
)

// newHeldWorker returns what tries held records again.
func (c *Consumer[T]) newHeldWorker() *projection.HeldWorker[T] {
	seen := older{}
	var latest item
	return projection.NewHeldWorker(projection.HeldConfig[T]{
		Group: c.cfg.Group, Policy: c.cfg.Held, InTx: c.cfg.Store.InTx, Timeout: c.cfg.BatchTimeout, Classify: c.classify, Hint: c.cfg.Hint,
		Control: c.cfg.Control, Logger: c.log, Metrics: &c.metrics,
		Decide: func(ctx context.Context, tx T, h *projection.HeldRecord) (projection.Outcome, error) {
			latest = c.newItem(&h.Record)
			if err := c.decide(ctx, tx, []*item{&latest}, seen); err != nil {
				return 0, err
			}
			return latest.outcome, c.keep(ctx, tx, []*item{&latest})
		},
		Answer: func(ctx context.Context, err error) (bool, error) { return c.answer(ctx, err, seen) },
		Settled: func() {
			clear(seen)
			if latest.effect == effectApplied {
				c.committed([]*Event{&latest.event})
			}
			latest = item{}
		},
	})
}

// RetryHeld tries held records again, until ctx ends. Every member runs it; a record is one member's at a time.
func (c *Consumer[T]) RetryHeld(ctx context.Context) { c.held.Run(ctx) }

// answer reads the older records that an error asks for.
func (c *Consumer[T]) answer(ctx context.Context, err error, into older) (asked bool, failed error) {
	needed, ok := isOneOf[*olderNeeded](err)
	if !ok {
		return false, nil
	}
	return true, c.readOlder(ctx, needed, into)
}

// failedError says that the effect of one event failed for a reason of the event's own that may pass.
type failedError struct {
	record *projection.Record
	err    error
}

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

var errDryRun = errors.New("a dry run is rolled back")
