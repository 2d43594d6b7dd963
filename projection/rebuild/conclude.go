package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// conclusion stores, in the exchange's transaction, that it was made.
func (r *run) conclusion(ctx context.Context, tx pgx.Tx) error {
	action, target := "rebuild.swap", "topic "+r.topic
	if r.kind == KindRollback {
		action = "rebuild.rollback"
		if _, err := tx.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = 'rolled_back', updated_at = clock_timestamp()
			WHERE id = (SELECT rebuild_id FROM shadow.rebuild_set) AND status = 'swapped'`)); err != nil {
			return fmt.Errorf("storing that the rebuild was rolled back: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = 'swapped', finished_at = clock_timestamp(), updated_at = clock_timestamp(),
			records = $2, total = $2, differing_orders = $3, differing_letters = $4, generation = $5 WHERE id = $1`),
		r.report.ID, r.fill.passed.Load(), r.report.DifferingOrders, r.report.DifferingLetters, r.report.Generation); err != nil {
		return fmt.Errorf("storing that the tables were exchanged: %w", err)
	}
	_, err := tx.Exec(ctx, r.sql(`INSERT INTO live.audit_log (actor, action, target, comment, after)
		VALUES ($1, $2, $3, $4, jsonb_build_object('rebuild', $5::bigint, 'group', $6::text, 'generation', $7::bigint, 'differing_orders', $8::bigint, 'differing_letters', $9::bigint))`),
		r.cfg.By.Actor, action, target, r.cfg.By.Comment, r.report.ID, r.group, r.report.Generation, r.report.DifferingOrders, r.report.DifferingLetters)
	if err != nil {
		return fmt.Errorf("auditing the exchange: %w", err)
	}
	return nil
}

// store stores how far the rebuild is.
func (r *run) store(ctx context.Context, status Status) error {
	r.report.Status = status
	err := r.patiently(ctx, func() error {
		_, err := r.cfg.DB.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = $2, updated_at = clock_timestamp() WHERE id = $1 AND finished_at IS NULL`), r.report.ID, status)
		return err
	})
	if err != nil {
		return fmt.Errorf("storing the state of the rebuild: %w", err)
	}
	return nil
}

// reportProgress tells now and then how far it is, until it is stopped.
func (r *run) reportProgress(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			passed, total := r.fill.passed.Load(), r.goal.Load()
			r.cfg.Progress(Progress{Phase: r.phase.Load().(Phase), Done: passed, Total: max(passed, total), Elapsed: time.Since(r.began)})
			if time.Since(r.saved) < saveInterval {
				continue
			}
			r.saved = time.Now()
			saving, cancel := context.WithTimeout(ctx, shortTimeout)
			_, err := r.cfg.DB.Exec(saving, r.sql(`UPDATE live.rebuilds SET records = $2, total = $3, updated_at = clock_timestamp()
				WHERE id = $1 AND finished_at IS NULL`), r.report.ID, passed, max(passed, total))
			cancel()
			if err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("how far the rebuild is could not be stored", "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// conclude removes what is not needed any more, and stores how it ended.
func (r *run) conclude(ctx context.Context, err error) error {
	r.report.Seconds = time.Since(r.began).Seconds()
	if r.fill != nil {
		r.report.Records = r.fill.passed.Load()
		for i := range r.report.Partitions {
			if p := r.fill.partitions[r.report.Partitions[i].Partition]; p != nil {
				r.report.Partitions[i].Next = p.next
			}
		}
	}
	if r.report.Status == StatusSwapped {
		return err
	}
	var differs *DifferenceError
	var aborted *AbortedError
	switch {
	case err == nil:
		r.report.Status = StatusCompared
	case errors.As(err, &differs):
		r.report.Status = StatusDiffers
	case errors.As(err, &aborted), ctx.Err() != nil:
		r.report.Status = StatusAborted
	default:
		r.report.Status = StatusFailed
	}
	if errors.Is(err, errLeaseLost) {
		return fmt.Errorf("%w (the live tables are as they were; the next rebuild, or rebuild abort, removes what is left of this one)", err)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if failed := finish(clean, r.cfg.DB, r.schemas, r.report, err); failed != nil {
		r.cfg.Logger.Warn("what is left of the rebuild could not be removed; the next one, or rebuild abort, will", "error", failed)
	}
	return err
}

// finish removes the shadow, or gives the old set back, and stores the end of a rebuild.
func finish(ctx context.Context, db *pgxpool.Pool, s schemas, report *Report, failure error) error {
	return transact(ctx, db, cleanUpTimeout, func(tx pgx.Tx) error {
		if err := removeShadow(ctx, tx, s); err != nil {
			return err
		}
		var text *string
		if failure != nil {
			message := failure.Error()
			text = &message
		}
		var orders, letters *int64
		if report.Attempts > 0 {
			orders, letters = &report.DifferingOrders, &report.DifferingLetters
		}
		_, err := tx.Exec(ctx, s.sql(`UPDATE live.rebuilds SET status = $2, failure = $3, finished_at = clock_timestamp(), updated_at = clock_timestamp(),
				records = $4, differing_orders = $5, differing_letters = $6
			WHERE id = $1 AND finished_at IS NULL`), report.ID, report.Status, text, report.Records, orders, letters)
		return err
	})
}
