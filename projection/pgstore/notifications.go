package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/notifications"
)

var (
	sqlNotificationsAdd    = statement("notifications_add")
	sqlNotificationsClaim  = statement("notifications_claim")
	sqlNotificationsBegin  = statement("notifications_begin")
	sqlNotificationsFinish = statement("notifications_finish")
)

// NotificationStore is a Store as the notifications consumer and its senders need it.
type NotificationStore struct{ *Store }

var (
	_ effects.Store[notifications.Tx] = NotificationStore{}
	_ notifications.Queue             = NotificationStore{}
)

// InTx implements effects.Store.
func (s NotificationStore) InTx(ctx context.Context, work func(context.Context, notifications.Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, t projection.Tx) error {
		own := t.(*tx)
		own.subject = &queuedNotifications
		return work(ctx, own)
	})
}

// AddNotifications implements notifications.Tx.
func (t *tx) AddNotifications(ctx context.Context, all []notifications.Notification) ([]string, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b notifications.Notification) int { return strings.Compare(a.EventID, b.EventID) })
	var (
		events, orders, ids, bodies, states, topics []string
		topicIDs                                    []uuid.UUID
		partitions                                  []int32
		offsets                                     []int64
	)
	for i := range all {
		n := &all[i]
		events, orders, ids, bodies = append(events, n.EventID), append(orders, n.OrderID), append(ids, n.Key), append(bodies, n.Body)
		states, topics, topicIDs = append(states, string(n.State)), append(topics, n.Topic), append(topicIDs, uuid.UUID(n.TopicID))
		partitions, offsets = append(partitions, n.Partition), append(offsets, n.Offset)
	}
	return collect[string](ctx, t, sqlNotificationsAdd, events, orders, ids, bodies, states, topics, topicIDs, partitions, offsets)
}

// inShort runs one statement in a transaction of its own, with the settings of shared sessions.
func (s NotificationStore) inShort(ctx context.Context, work func(pgx.Tx) error) error {
	return s.Store.InTx(ctx, func(_ context.Context, t projection.Tx) error { return work(t.(*tx).Tx) })
}

// Claim implements notifications.Queue.
func (s NotificationStore) Claim(ctx context.Context, worker string, limit int, lease time.Duration) (claimed []*notifications.Claimed, err error) {
	err = s.inShort(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlNotificationsClaim, worker, limit, lease)
		if err != nil {
			return err
		}
		claimed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*notifications.Claimed, error) {
			c := &notifications.Claimed{}
			return c, row.Scan(&c.EventID, &c.OrderID, &c.Key, &c.Body, &c.State, &c.Attempts, &c.Failures, &c.Claim)
		})
		return err
	})
	if err != nil {
		return nil, err // what a transaction claimed that did not commit is nobody's
	}
	return claimed, nil
}

// Begin implements notifications.Queue.
func (s NotificationStore) Begin(ctx context.Context, c *notifications.Claimed, lease time.Duration) (mine bool, err error) {
	err = s.inShort(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlNotificationsBegin, c.EventID, c.Claim, lease)
		mine = tag.RowsAffected() == 1
		return err
	})
	return mine && err == nil, err
}

// Finish implements notifications.Queue.
func (s NotificationStore) Finish(ctx context.Context, c *notifications.Claimed, r notifications.Result) (state notification.State, err error) {
	err = s.inShort(ctx, func(tx pgx.Tx) error {
		state = ""
		err := tx.QueryRow(ctx, sqlNotificationsFinish, c.EventID, c.Claim, string(r.State), r.Failed, r.Unsent, r.Status, storable(r.Error),
			r.Pause, r.Waits, notifications.MaxFailures).Scan(&state)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return state, err
}
