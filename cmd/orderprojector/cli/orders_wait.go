package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// Pauses between two looks at an order that is waited for.
const (
	firstLook = 10 * time.Millisecond
	slowLook  = 250 * time.Millisecond
)

// atLeast is the version that an order has to have, and how long to wait for it.
type atLeast struct {
	version int64
	wait    time.Duration
}

func (a atLeast) validate(cmd *cobra.Command) error {
	switch {
	case cmd.Flags().Changed("min-version") && a.version < 1:
		return usageError("--min-version must be at least 1")
	case a.wait < 0:
		return usageError("--wait must not be negative")
	case a.wait > 0 && a.version == 0:
		return usageError("--wait needs --min-version")
	}
	return nil
}

// read reads the order once it has the version. The first look is bounded by
// first, later ones by the time that is left and a little.
func (a atLeast) read(ctx, first context.Context, reader *pgstore.Reader, orderID string) (pgstore.OrderAnswer, error) {
	until := time.Now().Add(a.wait)
	answer, err := reader.Order(first, orderID)
	for pause := firstLook; ; pause = min(pause*3/2, slowLook) {
		if err != nil && !errors.Is(err, pgstore.ErrNotFound) || err == nil && versionOf(answer) >= a.version {
			return answer, err
		}
		left := time.Until(until)
		if left <= 0 {
			break
		}
		select {
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		case <-time.After(min(pause, left)):
		}
		look, cancel := context.WithTimeout(ctx, left+slowLook*20)
		answer, err = reader.Order(look, orderID)
		cancel()
	}
	if err != nil {
		return answer, err
	}
	return answer, a.missed(orderID, answer)
}

func versionOf(answer pgstore.OrderAnswer) int64 {
	if answer.Order == nil {
		return 0
	}
	return answer.Order.Version
}

// missed says how far the order has come instead.
func (a atLeast) missed(orderID string, answer pgstore.OrderAnswer) error {
	e := &Error{
		Code:   ExitFailed,
		Err:    fmt.Errorf("order %q is at version %d, not at %d, after %s", orderID, versionOf(answer), a.version, a.wait),
		Advice: "its event may not be projected yet: wait longer, or see orderprojector status for the lag",
	}
	if answer.Obstacle != nil {
		e.Advice = "it is held back: see orders get without --min-version"
	}
	return e
}
