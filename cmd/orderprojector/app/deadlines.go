package app

import (
	"context"
	"time"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// storeDeadlines stores the deadlines that somebody configured, so that every
// command, view and member goes by the same. Others stay as they are stored.
func (a *App) storeDeadlines(ctx context.Context) {
	var gap, letter time.Duration
	if a.cfg.Explicit("gap-deadline") {
		gap = a.cfg.Projection.GapDeadline
	}
	if a.cfg.Explicit("dead-letter-deadline") {
		letter = a.cfg.Projection.DeadLetterDeadline
	}
	if gap == 0 && letter == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	if err := pgstore.New(a.writePool).SetDeadlines(ctx, gap, letter); err != nil {
		a.logger.Warn("the configured deadlines are not stored: the ones before hold", "error", err)
	}
}
