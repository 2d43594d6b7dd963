package projection

import (
	"context"
	"errors"
)

// RefusalTx is the part of a transaction that the breaker needs. Its methods are those of Tx.
type RefusalTx interface {
	NoteRefusals(ctx context.Context, key WatermarkKey, refused []Refusals, policy BreakerPolicy) (BreakerWindow, error)
	TripBreaker(ctx context.Context, group string, trip BreakerTrip) error
}

// Judge opens the breaker when a batch's refused events are the ones too many, and returns the
// trip then. It comes behind AdvanceWatermark, in the batch's transaction, and costs nothing where none was refused.
// refused names no more orders of a reason than it is told. A nil control has no breaker.
func (c *Control) Judge(ctx context.Context, tx RefusalTx, key WatermarkKey, decided Counts, refused func(maxOrders int64) []Refusals) (*BreakerTrip, error) {
	if c == nil || c.cfg.Breaker.Disabled || decided[Invalid]+decided[Conflict]+decided[Illegal]+decided[Held] == 0 {
		return nil, nil
	}
	policy := c.cfg.Breaker
	window, err := tx.NoteRefusals(ctx, key, refused(policy.MinLetters), policy)
	if err != nil {
		return nil, err
	}
	trip, open := policy.judge(window)
	if !open {
		return nil, nil
	}
	return &trip, tx.TripBreaker(ctx, key.Group, trip)
}

// JudgeHeld opens the breaker when the group holds more records than it may, and returns the trip then. It comes behind
// Hold, in the same transaction. A nil control has no breaker.
func (c *Control) JudgeHeld(ctx context.Context, tx RefusalTx, group string, open int64) (*BreakerTrip, error) {
	if c == nil || c.cfg.Breaker.Disabled || open <= c.cfg.Breaker.MaxHeld {
		return nil, nil
	}
	trip := BreakerTrip{Reason: Held, Letters: open}
	return &trip, tx.TripBreaker(ctx, group, trip)
}

// holdsBack says why held records are not tried again now, nil when they are: nothing is applied while the group is paused. A
// breaker that opened because of held records is no reason. Held records are how its cause ends.
func (c *Control) holdsBack() error {
	if c == nil {
		return nil
	}
	_, why := c.Closed()
	var paused *PausedError
	if errors.As(why, &paused) && paused.Pause == nil && paused.Breaker.Reason == Held {
		return nil
	}
	return why
}
