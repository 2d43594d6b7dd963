package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// compare compares everything, on one moment of the database and without locks. What the members
// do meanwhile is looked at again later.
func (r *run) compare(ctx context.Context) error {
	r.phase.Store(Comparing)
	if err := r.store(ctx, StatusComparing); err != nil {
		return err
	}
	began := time.Now()
	step := func(what string) {
		r.cfg.Logger.Debug(what, "took", time.Since(began).String())
		began = time.Now()
	}
	// Readers of the exchanged tables need statistics at once; those of arrays, which take longest, can wait for a vacuum.
	for _, table := range []string{
		quote(r.shadow, "order_rows") + ` (order_id, version, customer_id, state, created_at, updated_at, projected_at, projection_status, waiting_for_version)`,
		quote(r.shadow, "order_ledger_archive"), quote(r.shadow, "parked_events"),
	} {
		if err := r.patiently(ctx, func() error {
			return transact(ctx, r.cfg.DB, longTimeout, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `ANALYZE `+table)
				return err
			})
		}); err != nil {
			return fmt.Errorf("analysing the rebuilt tables: %w", err)
		}
	}
	step("analysed")
	for round := 1; ; round++ {
		if err := r.follow(ctx); err != nil {
			return err
		}
		if err := r.patiently(ctx, func() error {
			_, err := r.fill.projector.SweepAll(ctx)
			return err
		}); err != nil {
			return fmt.Errorf("releasing parked events: %w", err)
		}
		step("caught up")
		r.fill.remember()
		err := r.patiently(ctx, func() error {
			return transactAs(ctx, r.cfg.DB, pgx.RepeatableRead, longTimeout, func(tx pgx.Tx) error {
				if err := r.everything(ctx, tx); err != nil {
					return err
				}
				if err := tx.QueryRow(ctx, r.sql(`SELECT count(*) FROM shadow.order_rows WHERE version > 0`)).Scan(&r.report.Orders); err != nil {
					return fmt.Errorf("counting the rebuilt orders: %w", err)
				}
				return r.count(ctx, tx, r.report, r.cfg.MaxListed)
			})
		})
		if err != nil {
			return err
		}
		step("compared")
		if err := r.follow(ctx); err != nil {
			return err
		}
		if _, whole := r.fill.remembered(); whole || round == compareRounds {
			return nil
		}
	}
}

// exchangePatiently tries to exchange the tables until it works out.
func (r *run) exchangePatiently(ctx context.Context) error {
	r.phase.Store(Exchanging)
	until, pause, freeze := time.Now().Add(r.cfg.Patience), firstPause, firstFreeze
	looked := false
	for {
		r.report.Attempts++
		err := r.attempt(ctx, freeze)
		if err != nil && passes(err) {
			if who := r.holders(ctx); who != "" {
				err = fmt.Errorf("%w: %s", err, who)
			}
		}
		var differs *DifferenceError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &differs) && !looked:
			// A member may be about to put it right: what it has just been told, or what waits for its sweep.
			looked, pause = true, settle
		case passes(err) && time.Now().Before(until):
			r.cfg.Logger.Info("the tables could not be exchanged yet, trying again", "attempt", r.report.Attempts, "reason", err, "in", pause.String())
		case passes(err):
			return &GaveUpError{After: r.cfg.Patience, Err: err}
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause, freeze = min(max(firstPause, 2*pause), longestPause), min(2*freeze, longFreeze)
		if err := r.follow(ctx); err != nil {
			return err
		}
		if _, whole := r.fill.remembered(); !whole { // too much was read since to look at it while the members wait
			if err := r.compare(ctx); err != nil {
				return err
			}
			r.phase.Store(Exchanging)
		}
	}
}

// attempt makes the members wait, brings the shadow up to exactly where they are, looks once more at what
// may differ, and exchanges the tables.
func (r *run) attempt(ctx context.Context, freeze time.Duration) error {
	var locked, readers time.Time
	err := transact(ctx, r.cfg.DB, 2*longFreeze, func(tx pgx.Tx) error {
		locked = time.Now()
		if err := lockLive(ctx, tx, r.schemas); err != nil {
			return err
		}
		frozen, cancel := context.WithTimeout(ctx, freeze)
		defer cancel()
		if err := r.catchUp(frozen, tx); err != nil {
			if ctx.Err() == nil && frozen.Err() != nil {
				return fmt.Errorf("%w (%s): %w", errFreezeTooLong, freeze, err)
			}
			return err
		}
		if err := r.count(ctx, tx, r.report, r.cfg.MaxListed); err != nil {
			return err
		}
		switch {
		case r.cfg.MaxDifferences >= 0 && r.report.Differing() > r.cfg.MaxDifferences:
			return &DifferenceError{r.report.DifferingOrders, r.report.DifferingLetters, r.cfg.MaxDifferences}
		case r.cfg.DryRun:
			return errDryRun
		}
		var err error
		readers, err = r.exchange(ctx, tx)
		return err
	})
	if !locked.IsZero() {
		r.report.WritersWaited = max(r.report.WritersWaited, time.Since(locked).Seconds())
	}
	if !readers.IsZero() {
		r.report.ReadersWaited = max(r.report.ReadersWaited, time.Since(readers).Seconds())
	}
	switch {
	case err == nil:
		r.report.Status = StatusSwapped
	case errors.Is(err, errDryRun):
		return nil
	case !readers.IsZero() && (!passes(err) || transient(err)) && r.swapped(ctx):
		r.report.Status = StatusSwapped // the connection broke during the commit, which was done
		return nil
	}
	return err
}

// swapped asks whether the exchange was committed.
func (r *run) swapped(ctx context.Context) (yes bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	err := r.patiently(ctx, func() error {
		return r.cfg.DB.QueryRow(ctx, r.sql(`SELECT status = 'swapped' FROM live.rebuilds WHERE id = $1`), r.report.ID).Scan(&yes)
	})
	return err == nil && yes
}

// catchUp brings the shadow up to the members, who wait, and compares again.
func (r *run) catchUp(ctx context.Context, tx pgx.Tx) error {
	rebuilt, err := r.readMarks(ctx, tx, "shadow")
	if err != nil {
		return err
	}
	if err := r.fill.rewind(ctx, rebuilt); err != nil {
		return err
	}
	marks, err := r.readMarks(ctx, tx, "live")
	if err != nil {
		return err
	}
	targets := r.targets(marks)
	if r.fill.left(targets) > tooFar {
		return errTooFarBehind
	}
	if err := r.fill.to(ctx, targets); err != nil {
		return err
	}
	decided, err := r.refoldDecided(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := r.fill.projector.SweepAll(ctx); err != nil {
		return fmt.Errorf("releasing parked events: %w", err)
	}
	orders, whole := r.fill.remembered()
	if !whole {
		return errTooFarBehind
	}
	return r.again(ctx, tx, append(orders, decided...))
}
