package effects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// What came of trying a held record again.
const (
	heldDone  = "done"
	heldAgain = "failed"
	heldDead  = "dead_letter"
)

// heldStep is how many held records are tried in one look.
const heldStep = 100

// RetryHeld tries held records again, until ctx ends. Every member runs it; a record is one member's at a time.
func (c *Consumer[T]) RetryHeld(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.HeldInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.cfg.Control != nil {
			if _, why := c.cfg.Control.Closed(); why != nil {
				continue
			}
		}
		for range heldStep {
			tried, err := c.retryOne(ctx)
			if err != nil && ctx.Err() == nil {
				c.log.Warn("trying held records again failed; the next look tries once more", "error", err, "hint", c.cfg.Hint(err))
			}
			if err != nil || !tried {
				break
			}
		}
	}
}

// retryOne tries one record that is due, in a transaction of its own.
func (c *Consumer[T]) retryOne(ctx context.Context) (tried bool, err error) {
	var h Held
	seen := older{}
	for {
		var result string
		var applied []*Event
		err = c.retrier.Bounded(ctx, func(ctx context.Context) error {
			return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
				h, result, applied = Held{}, "", nil
				due, err := tx.TakeHeld(ctx, c.cfg.Group, 1)
				if err != nil || len(due) == 0 {
					return err
				}
				h = due[0]
				it := c.newItem(&h.Record)
				if err := c.decide(ctx, tx, []*item{&it}, seen); err != nil {
					return err
				}
				result, err = c.settle(ctx, tx, h, &it)
				if it.effect == effectApplied {
					applied = []*Event{&it.event}
				}
				return err
			})
		})
		if needed, ok := isOneOf[*olderNeeded](err); ok {
			if err = c.readOlder(ctx, needed, seen); err == nil {
				continue
			}
			return true, err
		}
		if err == nil {
			if h.ID != 0 {
				c.metrics.held.WithLabelValues(result).Inc()
				c.committed(applied)
			}
			return h.ID != 0, nil
		}
		if h.ID == 0 || ctx.Err() != nil || c.retrier.Classify(err) != projection.BadData {
			return true, err
		}
		// The database refuses it now, or the effect panicked: a dead letter at once.
		cause := err
		c.metrics.Blamed.Inc()
		return true, c.retrier.Bounded(ctx, func(ctx context.Context) error {
			return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
				it := c.newItem(&h.Record)
				it.blame(cause)
				_, err := c.settle(ctx, tx, h, &it)
				return err
			})
		})
	}
}

// settle writes what became of a held record.
func (c *Consumer[T]) settle(ctx context.Context, tx T, h Held, it *item) (string, error) {
	if it.failed != nil {
		counted, err := tx.Postpone(ctx, h, it.failed.Error(), c.heldPause(h.Counted))
		if err != nil {
			return "", fmt.Errorf("postponing a held record: %w", err)
		}
		if counted < MaxFailures {
			return heldAgain, nil
		}
		c.log.Error("the effect of an event failed too often: dead letter", "event_id", h.EventID, "order_id", h.OrderID, "failures", counted, "error", it.failed)
		it.outcome, it.detail = projection.Invalid, fmt.Sprintf("its effect failed %d times while others succeeded: %.400v", counted, it.failed)
		it.failed = nil
	}
	if err := c.keep(ctx, tx, []*item{it}); err != nil {
		return "", err
	}
	if err := tx.Release(ctx, h); err != nil {
		return "", fmt.Errorf("releasing a held record: %w", err)
	}
	if it.outcome.DeadLetters() {
		return heldDead, nil
	}
	return heldDone, nil
}

func (c *Consumer[T]) heldPause(counted int) time.Duration {
	pause := c.cfg.HeldBase
	for range min(counted, 30) {
		if pause *= 2; pause >= c.cfg.HeldCap {
			pause = c.cfg.HeldCap
			break
		}
	}
	return pause + rand.N(pause/4+1)
}

var errDryRun = errors.New("a dry run is rolled back")
