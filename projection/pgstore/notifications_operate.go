package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection"
)

// NotificationView is a row of the relation notifications. Its JSON names are the column names.
type NotificationView struct {
	EventID        string     `json:"event_id"`
	OrderID        string     `json:"order_id"`
	IdempotencyKey string     `json:"idempotency_key"`
	State          string     `json:"state"`
	Attempts       int        `json:"attempts"`
	Failures       int        `json:"failures"`
	ClaimedBy      *string    `json:"claimed_by"`
	DueAt          *time.Time `json:"due_at"` // null for what waits for an operator, or for nobody
	LastStatus     *int       `json:"last_status"`
	LastError      *string    `json:"last_error"`
	SentAt         *time.Time `json:"sent_at"`
	KafkaTopic     string     `json:"kafka_topic"`
	KafkaPartition int32      `json:"kafka_partition"`
	KafkaOffset    int64      `json:"kafka_offset"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

const notificationColumns = `event_id, order_id, idempotency_key, state, attempts, failures, claimed_by,
	CASE WHEN state IN ('pending', 'sending', 'unknown') AND due_at < 'infinity' THEN due_at END AS due_at,
	last_status, last_error, sent_at, kafka_topic, kafka_partition, kafka_offset, created_at, updated_at`

// NotificationFilter selects notifications. Empty fields select all.
type NotificationFilter struct {
	States []string
	Order  string
	After  string // only event IDs behind it
	Limit  int
}

// Notifications reads notifications in the order of their event IDs. more says that there are others behind the last one.
func (r *Reader) Notifications(ctx context.Context, f NotificationFilter) (all []NotificationView, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		all, err = query[NotificationView](ctx, tx, "notifications", `SELECT `+notificationColumns+` FROM notifications
			WHERE ($1::text[] IS NULL OR state = ANY ($1)) AND ($2 = '' OR order_id = $2) AND event_id > $3
			ORDER BY event_id LIMIT $4`, f.States, f.Order, f.After, f.Limit+1)
		return err
	})
	if len(all) > f.Limit {
		return all[:f.Limit], true, err
	}
	return all, false, err
}

// NotificationCount counts the notifications of one state.
type NotificationCount struct {
	State         string
	Notifications int64
	OldestSeconds float64 // since the oldest of them was written; 0 for none
}

// CountNotifications counts those that are not finished, and those that wait for an operator.
func (r *Reader) CountNotifications(ctx context.Context) (counts []NotificationCount, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		counts, err = query[NotificationCount](ctx, tx, "notifications", `
			SELECT state, count(*) AS notifications,
			       coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_seconds
			FROM notifications WHERE state IN ('pending', 'sending', 'unknown', 'failed') GROUP BY state`)
		return err
	})
	return counts, err
}

// CountUnowned counts the entries of the points ledger of which the customer is not known.
func (r *Reader) CountUnowned(ctx context.Context) (entries int64, err error) {
	err = r.pool.QueryRow(ctx, `SELECT count(*) FROM points_ledger WHERE customer_id IS NULL`).Scan(&entries)
	if err != nil {
		err = fmt.Errorf("reading points_ledger: %w", err)
	}
	return entries, err
}

// NotificationSelection selects notifications to act on: single ones, or all of a state.
type NotificationSelection struct {
	EventIDs []string
	State    string
}

// NotificationChange is what an operator's action did to a notification.
type NotificationChange struct {
	EventID string `json:"event_id"`
	OrderID string `json:"order_id"`
	From    string `json:"from"`
	To      string `json:"to"` // as From where the action is none for its state
	Problem string `json:"problem,omitempty"`
}

// operateStep is how many notifications of a state are changed in one transaction.
const operateStep = 500

// OperateNotifications has an operator's action happen to notifications, each with one row in the audit log, and calls changed for
// each. Those in whose state it cannot happen are left as they are. One that is named and does not
// exist gives ErrNotFound.
func (s *Store) OperateNotifications(ctx context.Context, on notification.Event, sel NotificationSelection, by projection.By, changed func(NotificationChange)) error {
	for after := ""; ; {
		var step []NotificationChange
		err := pgx.BeginTxFunc(ctx, s.pool, s.txOptions, func(tx pgx.Tx) (err error) {
			step, err = operateNotifications(ctx, tx, on, sel, after, by)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of notifications: %w", on, err)
		}
		for _, c := range step {
			changed(c)
			after = c.EventID
		}
		if len(sel.EventIDs) > 0 || len(step) < operateStep {
			return nil
		}
	}
}

func operateNotifications(ctx context.Context, tx pgx.Tx, on notification.Event, sel NotificationSelection, after string, by projection.By) ([]NotificationChange, error) {
	var ids []string
	if len(sel.EventIDs) > 0 {
		ids = sel.EventIDs
	}
	rows, err := tx.Query(ctx, `SELECT event_id, order_id, state FROM notifications
		WHERE ($1::text[] IS NULL OR event_id = ANY ($1)) AND ($2 = '' OR state = $2) AND event_id > $3
		ORDER BY event_id LIMIT $4 FOR UPDATE`, ids, sel.State, after, max(operateStep, len(ids)))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c NotificationChange, err error) {
		return c, row.Scan(&c.EventID, &c.OrderID, &c.From)
	})
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(found))
	var moved, states []string
	var entries []projection.AuditEntry
	for i := range found {
		c := &found[i]
		known[c.EventID], c.To = true, c.From
		to, err := notification.Next(notification.State(c.From), on)
		var refused *notification.TransitionError
		if errors.As(err, &refused) {
			c.Problem = refused.Error()
			continue
		}
		c.To = string(to)
		moved, states = append(moved, c.EventID), append(states, c.To)
		entries = append(entries, projection.AuditEntry{
			Actor: by.Actor, Action: "notifications." + string(on), Target: "notification " + c.EventID, Comment: by.Comment,
			Before: map[string]string{"state": c.From}, After: map[string]string{"state": c.To},
		})
	}
	for _, id := range ids {
		if !known[id] {
			return nil, fmt.Errorf("notification of event %q: %w", id, ErrNotFound)
		}
	}
	// The claim's number is raised, so that whoever still works on it does not write over this.
	if _, err := tx.Exec(ctx, `UPDATE notifications AS n
		SET state = c.state, due_at = now(), failures = 0, claims = n.claims + 1, claimed_by = NULL, updated_at = now()
		FROM unnest($1::text[], $2::text[]) AS c (event_id, state) WHERE n.event_id = c.event_id`, moved, states); err != nil {
		return nil, err
	}
	return found, audit(ctx, tx, entries...)
}
