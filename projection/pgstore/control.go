package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

var (
	sqlBreakerNote       = statement("breaker_note")
	sqlBreakerWindow     = statement("breaker_window")
	sqlBreakerTrip       = statement("breaker_trip")
	sqlBreakerEventsNote = statement("breaker_events_note")
	sqlBreakerForget     = statement("breaker_forget")
)

var _ projection.ControlStore = (*Store)(nil)

// NoteRefusals implements projection.Tx.
func (t *tx) NoteRefusals(ctx context.Context, key projection.WatermarkKey, refused []projection.Refusals, p projection.BreakerPolicy) (projection.BreakerWindow, error) {
	var reasons, orderReasons, orders []string
	var letters []int64
	for _, r := range refused {
		reasons, letters = append(reasons, r.Reason.String()), append(letters, r.Letters)
		for _, id := range r.OrderIDs {
			orderReasons, orders = append(orderReasons, r.Reason.String()), append(orders, storable(id))
		}
	}
	if _, err := t.Exec(ctx, sqlBreakerNote, key.Group, key.Partition, reasons, letters, orderReasons, orders, p.MinLetters); err != nil {
		return projection.BreakerWindow{}, fmt.Errorf("noting refused events: %w", err)
	}
	rows, err := t.Query(ctx, sqlBreakerWindow, key.Group, p.Window)
	if err != nil {
		return projection.BreakerWindow{}, fmt.Errorf("reading the breaker's window: %w", err)
	}
	var w projection.BreakerWindow
	w.Refused, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.Refusals, error) {
		var r projection.Refusals
		var reason string
		if err := row.Scan(&reason, &r.Letters, &r.Orders, &w.Events); err != nil {
			return r, err
		}
		r.Reason, err = outcome(reason)
		return r, err
	})
	if err != nil {
		return projection.BreakerWindow{}, fmt.Errorf("reading the breaker's window: %w", err)
	}
	return w, nil
}

func outcome(name string) (projection.Outcome, error) {
	all := projection.Outcomes()
	i := slices.IndexFunc(all, func(o projection.Outcome) bool { return o.String() == name })
	if i < 0 {
		return 0, fmt.Errorf("%q is no outcome", name)
	}
	return all[i], nil
}

// TripBreaker implements projection.Tx.
func (t *tx) TripBreaker(ctx context.Context, group string, trip projection.BreakerTrip) error {
	_, err := t.Exec(ctx, sqlBreakerTrip, group, trip.Reason.String(), trip.Letters, trip.Orders, trip.Events)
	if err != nil {
		return fmt.Errorf("opening the breaker: %w", err)
	}
	return nil
}

// Consumption implements projection.ControlStore.
func (s *Store) Consumption(ctx context.Context, group string) (projection.Consumption, error) {
	return readConsumption(ctx, s.pool, group, "")
}

// rowQuerier is a pool, a connection or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readConsumption(ctx context.Context, db rowQuerier, group, locking string) (projection.Consumption, error) {
	var (
		pausedAt, openedAt      *time.Time
		by, comment, reason     *string
		letters, orders, events *int64
	)
	err := db.QueryRow(ctx, `SELECT paused_at, paused_by, pause_comment,
			breaker_opened_at, breaker_reason, breaker_letters, breaker_orders, breaker_events
		FROM consumption_control WHERE consumer_group = $1 `+locking, group).
		Scan(&pausedAt, &by, &comment, &openedAt, &reason, &letters, &orders, &events)
	var c projection.Consumption
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("reading whether %s may consume: %w", group, err)
	}
	if pausedAt != nil {
		c.Pause = &projection.Pause{Since: *pausedAt, By: projection.By{Actor: value(by), Comment: value(comment)}}
	}
	if openedAt != nil {
		c.Breaker = &projection.BreakerTrip{Since: *openedAt, Letters: value(letters), Orders: value(orders), Events: value(events)}
		if c.Breaker.Reason, err = outcome(value(reason)); err != nil {
			return c, fmt.Errorf("reading whether %s may consume: %w", group, err)
		}
	}
	return c, nil
}

// value returns what p points to, the zero value for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// GroupKnown reports whether a group has consumed into this database.
func (s *Store) GroupKnown(ctx context.Context, group string) (known bool, err error) {
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM projection_watermarks WHERE consumer_group = $1)`, group).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("looking for group %s: %w", group, err)
	}
	return known, nil
}

// NoteEvents implements projection.ControlStore.
func (s *Store) NoteEvents(ctx context.Context, group string, interval, window time.Duration) error {
	tag, err := s.pool.Exec(ctx, sqlBreakerEventsNote, group, interval)
	if err == nil && tag.RowsAffected() > 0 {
		_, err = s.pool.Exec(ctx, sqlBreakerForget, group, window)
	}
	if err != nil {
		return fmt.Errorf("noting the events counted: %w", err)
	}
	return nil
}

// StateError says that there is nothing to do: a group that is to be paused is paused
// already, one that is to be resumed consumes.
type StateError struct{ Problem, Advice string }

func (e *StateError) Error() string { return e.Problem }

// Hint says what to look at.
func (e *StateError) Hint() string { return e.Advice }

// Pause stores that the group is paused, and audits it. A group that an operator has
// paused already is left as it is, with a *StateError. It returns the state before.
func (s *Store) Pause(ctx context.Context, group string, by projection.By) (before projection.Consumption, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, s.txOptions, func(tx pgx.Tx) error {
		before, err = changeConsumption(ctx, tx, "pause", group, by, func(before projection.Consumption) error {
			if before.Pause != nil {
				return &StateError{before.Closed().Error(), "resume it first to pause it for another reason"}
			}
			_, err := tx.Exec(ctx, `UPDATE consumption_control SET paused_at = now(), paused_by = $2, pause_comment = $3 WHERE consumer_group = $1`,
				group, storable(by.Actor), storable(by.Comment))
			return err
		})
		return err
	})
	return before, err
}

// Resume ends the group's pause, closes its breaker and clears the breaker's window, and
// audits it. Where neither is in the way it changes nothing and returns a *StateError. It returns
// the state before.
func (s *Store) Resume(ctx context.Context, group string, by projection.By) (before projection.Consumption, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, s.txOptions, func(tx pgx.Tx) error {
		// Letters first, then the state: the order in which a batch takes them when it opens the breaker.
		batch := &pgx.Batch{}
		batch.Queue(`DELETE FROM breaker_letters WHERE consumer_group = $1`, group)
		batch.Queue(`DELETE FROM breaker_events WHERE consumer_group = $1`, group)
		batch.Queue(sqlBreakerEventsNote, group, time.Duration(0))
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("clearing the breaker's window: %w", err)
		}
		before, err = changeConsumption(ctx, tx, "resume", group, by, func(before projection.Consumption) error {
			if before.Closed() == nil {
				return &StateError{"group " + group + " is not paused", "see: orderprojector status"}
			}
			_, err := tx.Exec(ctx, `UPDATE consumption_control SET paused_at = NULL, paused_by = NULL, pause_comment = NULL,
				breaker_opened_at = NULL, breaker_reason = NULL, breaker_letters = NULL, breaker_orders = NULL, breaker_events = NULL
				WHERE consumer_group = $1`, group)
			return err
		})
		return err
	})
	return before, err
}

// changeConsumption changes a group's state, locked, and audits the change. It returns the state before.
func changeConsumption(ctx context.Context, tx pgx.Tx, action, group string, by projection.By, change func(projection.Consumption) error) (before projection.Consumption, err error) {
	if _, err := tx.Exec(ctx, `INSERT INTO consumption_control (consumer_group) VALUES ($1) ON CONFLICT DO NOTHING`, group); err != nil {
		return before, fmt.Errorf("%s: %w", action, err)
	}
	if before, err = readConsumption(ctx, tx, group, "FOR UPDATE"); err != nil {
		return before, err
	}
	if err := change(before); err != nil {
		return before, fmt.Errorf("%s: %w", action, err)
	}
	after, err := readConsumption(ctx, tx, group, "")
	if err != nil {
		return before, err
	}
	return before, audit(ctx, tx, projection.AuditEntry{
		Actor: by.Actor, Action: action, Target: "group " + group, Comment: by.Comment,
		Before: viewConsumption(before), After: viewConsumption(after),
	})
}
