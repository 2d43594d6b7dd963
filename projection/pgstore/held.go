package pgstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

var (
	sqlHeldAdd      = statement("held_add")
	sqlHeldTake     = statement("held_take")
	sqlHeldLock     = statement("held_lock")
	sqlHeldPostpone = statement("held_postpone")
	sqlHeldOrders   = statement("held_orders")
	sqlHeldOfOrder  = statement("held_of_order")
	sqlHeldRead     = strings.Replace(sqlHeldLock, "FOR UPDATE", "", 1)
	sqlHeldDue      = statement("held_due")
)

// subject is what a kind of consumer writes for an order.
type subject struct {
	// touch updates a row of another order than $1 without changing it, the one at place $3, and none that is locked. $2 is the group.
	touch string
	// locked returns those of the orders $1 whose rows another transaction has locked; "" where there is no such row.
	locked string
}

// other selects, of a table's rows, one of another order without held records.
const other = ` WHERE order_id <> $1 AND NOT EXISTS (SELECT FROM held_records h WHERE h.consumer_group = $2 AND h.order_id = t.order_id)
	ORDER BY order_id OFFSET $3 LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED`

var (
	projectedOrders = subject{
		touch: `UPDATE order_rows SET revision = revision WHERE order_id = (SELECT order_id FROM order_rows t` + other + `)`,
		locked: `WITH free AS (
				SELECT order_id FROM order_rows WHERE order_id = ANY ($1::text[]) ORDER BY order_id FOR NO KEY UPDATE SKIP LOCKED
			)
			SELECT order_id FROM order_rows WHERE order_id = ANY ($1::text[]) AND order_id NOT IN (SELECT order_id FROM free)`,
	}
	bookedPoints = subject{
		touch: `UPDATE points_ledger SET delta = delta WHERE source = (SELECT source FROM points_ledger t` + other + `)`,
	}
	queuedNotifications = subject{
		touch: `UPDATE notifications SET attempts = attempts WHERE event_id = (SELECT event_id FROM notifications t` + other + `)`,
	}
)

// HeldOrders implements projection.HeldTx.
func (t *tx) HeldOrders(ctx context.Context, key projection.WatermarkKey, orderIDs []string) (map[string]bool, error) {
	ids, err := collect[string](ctx, t, sqlHeldOrders, append(watermarkArgs(key), storableAll(orderIDs))...)
	held := make(map[string]bool, len(ids))
	for _, id := range ids {
		held[id] = true
	}
	return held, err
}

func storableAll(ids []string) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = storable(id)
	}
	return all
}

// Hold implements projection.HeldTx.
func (t *tx) Hold(ctx context.Context, group string, held []*projection.HeldRecord) (open int64, err error) {
	var ids, events, types, causes, classes []string
	var versions []int64
	var failures, counted []int32
	var recs records
	for _, h := range held {
		ids, events, types = append(ids, storable(h.OrderID)), append(events, storable(h.EventID)), append(types, storable(h.Type))
		causes, classes, versions = append(causes, storable(h.Cause)), append(classes, h.Class), append(versions, h.Version)
		failures, counted = append(failures, int32(h.Failures)), append(counted, int32(h.Counted))
		recs.add(&h.Record)
	}
	_, err = t.Exec(ctx, sqlHeldAdd, group, recs.topics, recs.topicIDs, recs.partitions, recs.offsets, recs.times, recs.timeTypes,
		recs.keys, recs.values, recs.headers, ids, events, versions, types, causes, classes, failures, counted, recs.millis)
	if err != nil {
		return 0, err
	}
	err = t.QueryRow(ctx, `SELECT count(*) FROM held_records WHERE consumer_group = $1`, group).Scan(&open)
	return open, err
}

// TakeHeld implements projection.HeldTx.
func (t *tx) TakeHeld(ctx context.Context, group string) (*projection.HeldRecord, error) {
	return scanHeld(t.QueryRow(ctx, sqlHeldTake, group))
}

// LockHeld implements projection.HeldTx.
func (t *tx) LockHeld(ctx context.Context, group string, id int64) (*projection.HeldRecord, error) {
	return scanHeld(t.QueryRow(ctx, sqlHeldLock, group, id))
}

// HeldOf implements projection.OperatorTx.
func (t *tx) HeldOf(ctx context.Context, group, orderID string) ([]*projection.HeldRecord, error) {
	rows, err := t.Query(ctx, sqlHeldOfOrder, group, storable(orderID))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*projection.HeldRecord, error) { return scanHeld(row) })
}

// HeldAround implements projection.OperatorTx.
func (t *tx) HeldAround(ctx context.Context, group string, h *projection.HeldRecord) (before, behind int64, err error) {
	err = t.QueryRow(ctx, `SELECT count(*) FILTER (WHERE kafka_offset < $6), count(*) FILTER (WHERE kafka_offset > $6) FROM held_records
		WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4 AND order_id = $5 AND order_id <> ''`,
		append(watermarkArgs(h.Key(group)), storable(h.OrderID), h.Record.Offset)...).Scan(&before, &behind)
	return before, behind, err
}

// MakeHeldDue implements projection.OperatorTx.
func (t *tx) MakeHeldDue(ctx context.Context, group string, s projection.HeldSelection, actor string) ([]projection.HeldRetry, error) {
	var ids []int64 // NULL where none is named
	if len(s.IDs) > 0 {
		ids = s.IDs
	}
	rows, err := t.Query(ctx, sqlHeldDue, group, ids, storable(s.Order), storable(actor))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[projection.HeldRetry])
}

func scanHeld(row pgx.Row) (*projection.HeldRecord, error) {
	h := &projection.HeldRecord{}
	into := append([]any{&h.ID}, recordColumns(&h.Record)...)
	err := row.Scan(append(into, &h.OrderID, &h.EventID, &h.Version, &h.Type, &h.Cause, &h.Class, &h.Failures, &h.Counted, &h.HeldAt)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return h, err
}

// Postpone implements projection.HeldTx.
func (t *tx) Postpone(ctx context.Context, h *projection.HeldRecord, pause time.Duration) error {
	_, err := t.Exec(ctx, sqlHeldPostpone, h.ID, h.Failures, h.Counted, storable(h.Cause), h.Class, pause)
	return err
}

// Release implements projection.HeldTx.
func (t *tx) Release(ctx context.Context, h *projection.HeldRecord) error {
	_, err := t.Exec(ctx, `DELETE FROM held_records WHERE id = $1`, h.ID)
	return err
}

// Trial implements projection.HeldTx.
func (t *tx) Trial(ctx context.Context, work func(context.Context) error) error {
	if _, err := t.Exec(ctx, `SAVEPOINT trial`); err != nil {
		return err
	}
	letters := len(t.letters)
	defer func() { t.letters = t.letters[:letters] }()
	_, err := t.Exec(ctx, `SELECT set_config('statement_timeout', '1s', true), set_config('lock_timeout', '1s', true)`)
	if err == nil {
		err = work(ctx)
	}
	if _, undone := t.Exec(ctx, `ROLLBACK TO SAVEPOINT trial`); undone != nil {
		return errors.Join(err, undone)
	}
	return err
}

// TouchOther implements projection.HeldTx.
func (t *tx) TouchOther(ctx context.Context, group, orderID string, nth int) (bool, error) {
	tag, err := t.Exec(ctx, t.subject.touch, storable(orderID), group, nth)
	return tag.RowsAffected() > 0, err
}

// LockedElsewhere implements projection.HeldTx.
func (t *tx) LockedElsewhere(ctx context.Context, orderIDs []string) ([]string, error) {
	if t.subject.locked == "" {
		return nil, nil
	}
	return collect[string](ctx, t, t.subject.locked, storableAll(orderIDs))
}

// StoredVersion implements projection.HeldTx.
func (t *tx) StoredVersion(ctx context.Context, orderID string) (version int64, err error) {
	err = t.QueryRow(ctx, `SELECT version FROM order_rows WHERE order_id = $1`, storable(orderID)).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
