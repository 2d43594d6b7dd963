package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Order is a row of the relation orders. Its JSON names are the column names;
// each amount is there in minor units and, beside it, as a decimal.
type Order struct {
	OrderID           string     `json:"order_id"`
	CustomerID        string     `json:"customer_id"`
	State             string     `json:"state"`
	Version           int64      `json:"version"`
	Currency          string     `json:"currency"`
	TotalMinor        int64      `json:"total_minor"`
	Total             string     `json:"total" db:"-"`
	PaidMinor         int64      `json:"paid_minor"`
	Paid              string     `json:"paid" db:"-"`
	RefundedMinor     int64      `json:"refunded_minor"`
	Refunded          string     `json:"refunded" db:"-"`
	CreatedAt         *time.Time `json:"created_at"`   // the first event's time
	UpdatedAt         *time.Time `json:"updated_at"`   // the last event's time
	ProjectedAt       time.Time  `json:"projected_at"` // wall clock of the last write
	LastEventID       string     `json:"last_event_id"`
	ProjectionStatus  string     `json:"projection_status"`
	WaitingForVersion *int64     `json:"waiting_for_version"`
	KafkaTopic        string     `json:"kafka_topic"`
	KafkaPartition    int32      `json:"kafka_partition"`
	KafkaOffset       int64      `json:"kafka_offset"`
	WaitingSince      *time.Time `json:"waiting_since"` // since when it is held up
	Overdue           bool       `json:"overdue"`       // for longer than the deadline
}

const orderColumns = `order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
	created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
	kafka_topic, kafka_partition, kafka_offset, waiting_since, overdue`

// complete adds what the row does not hold.
func (o *Order) complete() {
	o.Total = order.Money{Minor: o.TotalMinor, Currency: o.Currency}.Amount()
	o.Paid = order.Money{Minor: o.PaidMinor, Currency: o.Currency}.Amount()
	o.Refunded = order.Money{Minor: o.RefundedMinor, Currency: o.Currency}.Amount()
	o.CreatedAt, o.UpdatedAt = utc(o.CreatedAt), utc(o.UpdatedAt)
	o.ProjectedAt, o.WaitingSince = o.ProjectedAt.UTC(), utc(o.WaitingSince)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// WaitingOrder is a row of the relation waiting_orders: an order of which
// nothing is applied yet.
type WaitingOrder struct {
	OrderID           string     `json:"order_id"`
	ProjectionStatus  string     `json:"projection_status"`
	WaitingForVersion *int64     `json:"waiting_for_version"`
	ProjectedAt       time.Time  `json:"projected_at"`
	WaitingSince      *time.Time `json:"waiting_since"`
	Overdue           bool       `json:"overdue"`
}

const waitingOrderColumns = `order_id, projection_status, waiting_for_version, projected_at, waiting_since, overdue`

func (o *WaitingOrder) utc() {
	o.ProjectedAt, o.WaitingSince = o.ProjectedAt.UTC(), utc(o.WaitingSince)
}

// Obstacle is what holds an order back: the events parked behind a missing
// version, and the open dead letters that block.
type Obstacle struct {
	ParkedEvents int64            `json:"parked_events"`
	ParkedFrom   *int64           `json:"parked_from_version"` // lowest parked version
	WaitingSince *time.Time       `json:"waiting_since"`       // since when the oldest is parked
	Letters      []BlockingLetter `json:"blocking_dead_letters"`
	HeldRecords  int64            `json:"held_records"`
	Held         []BlockingHeld   `json:"blocking_held_records"` // the heads of the order's queues, at most 20
}

// BlockingHeld is the held record that is tried next of those that hold their order back.
type BlockingHeld struct {
	ID       int64     `json:"id"`
	Group    string    `json:"consumer_group"`
	Version  *int64    `json:"version"`
	EventID  string    `json:"event_id"`
	Class    string    `json:"class"`
	Cause    string    `json:"cause"`
	Failures int32     `json:"failures"`
	HeldAt   time.Time `json:"held_at"`
}

// BlockingLetter is an open dead letter that holds its order back.
type BlockingLetter struct {
	ID      int64  `json:"id"`
	Version int64  `json:"version"`
	EventID string `json:"event_id"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail"`
}

// OrderAnswer is all that is known of one order: exactly one of Order and Waiting is set.
type OrderAnswer struct {
	Order    *Order
	Waiting  *WaitingOrder
	Obstacle *Obstacle // nil while nothing holds the order back
}

// Order looks an order up. The error is ErrNotFound when neither an applied
// event nor a waiting one names it.
func (r *Reader) Order(ctx context.Context, orderID string) (OrderAnswer, error) {
	var answer OrderAnswer
	err := r.snapshot(ctx, func(tx pgx.Tx) (err error) {
		answer, err = readOrder(ctx, tx, orderID)
		return err
	})
	return answer, err
}

func readOrder(ctx context.Context, tx pgx.Tx, orderID string) (OrderAnswer, error) {
	var answer OrderAnswer
	found, err := query[Order](ctx, tx, "orders", `SELECT `+orderColumns+` FROM orders WHERE order_id = $1`, orderID)
	if err != nil {
		return answer, err
	}
	if len(found) > 0 {
		answer.Order = &found[0]
		answer.Order.complete()
		if answer.Order.ProjectionStatus == "ok" {
			return answer, nil
		}
	} else {
		waiting, err := query[WaitingOrder](ctx, tx, "waiting_orders",
			`SELECT `+waitingOrderColumns+` FROM waiting_orders WHERE order_id = $1`, orderID)
		if err != nil {
			return answer, err
		}
		if len(waiting) == 0 {
			return answer, ErrNotFound
		}
		answer.Waiting = &waiting[0]
		answer.Waiting.utc()
	}
	answer.Obstacle, err = readObstacle(ctx, tx, orderID)
	return answer, err
}

func readObstacle(ctx context.Context, tx pgx.Tx, orderID string) (*Obstacle, error) {
	type parked struct {
		ParkedEvents int64
		ParkedFrom   *int64
		WaitingSince *time.Time
	}
	counts, err := query[parked](ctx, tx, "parked_events",
		`SELECT count(*) AS parked_events, min(version) AS parked_from, min(parked_at) AS waiting_since
		 FROM parked_events WHERE order_id = $1`, orderID)
	if err != nil {
		return nil, err
	}
	letters, err := query[BlockingLetter](ctx, tx, "dead_letters",
		`SELECT id, version, coalesce(event_id, '') AS event_id, reason, detail FROM dead_letters
		 WHERE order_id = $1 AND blocks AND status IN ('open', 'exhausted') AND version IS NOT NULL
		 ORDER BY version, id`, orderID)
	if err != nil {
		return nil, err
	}
	var held int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM held_records WHERE order_id = $1 AND projected`, orderID).Scan(&held); err != nil {
		return nil, fmt.Errorf("reading held_records: %w", err)
	}
	heads, err := query[BlockingHeld](ctx, tx, "held_records",
		`SELECT DISTINCT ON (consumer_group, kafka_topic, topic_id, kafka_partition)
		        id, consumer_group AS "group", version, event_id, class, cause, failures, held_at
		 FROM held_records WHERE order_id = $1 AND projected
		 ORDER BY consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset LIMIT 20`, orderID)
	if err != nil {
		return nil, err
	}
	for i := range heads {
		heads[i].HeldAt = heads[i].HeldAt.UTC()
	}
	return &Obstacle{
		ParkedEvents: counts[0].ParkedEvents, ParkedFrom: counts[0].ParkedFrom, WaitingSince: utc(counts[0].WaitingSince),
		Letters: letters, HeldRecords: held, Held: heads,
	}, nil
}

// OrderFilter selects orders; empty fields select all.
type OrderFilter struct {
	State    string
	Customer string
	Status   string // projection_status
	After    string // only orders behind this ID, in bytewise order
	Limit    int
}

// orders is the question for orders.
func (f *OrderFilter) orders() (sql string, args []any) {
	return `SELECT ` + orderColumns + ` FROM orders
		WHERE order_id > $1
		  AND ($2 = '' OR state = $2) AND ($3 = '' OR customer_id = $3) AND ($4 = '' OR projection_status = $4) ` + f.candidates() + `
		ORDER BY order_id LIMIT $5`, []any{f.After, f.State, f.Customer, f.Status, f.Limit + 1}
}

// waiting is the question for orders of which nothing is applied yet.
func (f *OrderFilter) waiting() (sql string, args []any) {
	return `SELECT ` + waitingOrderColumns + ` FROM waiting_orders
		WHERE order_id > $1 AND ($2 = '' OR projection_status = $2)
		ORDER BY order_id LIMIT $3`, []any{f.After, f.Status, f.Limit + 1}
}

// candidates is a condition that narrows orders down to those that may have the status. The view derives the status, which
// no index holds.
func (f *OrderFilter) candidates() string {
	switch f.Status {
	case "blocked":
		return `AND order_id IN (` + blockedOrders + `)`
	case "waiting":
		return `AND order_id IN (SELECT order_id FROM order_rows WHERE projection_status <> 'ok' AND projection_status = 'waiting')`
	}
	return ""
}

// Orders lists orders by ID, bytewise. more says that there are others behind the last one.
func (r *Reader) Orders(ctx context.Context, f OrderFilter) (orders []Order, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		sql, args := f.orders()
		orders, err = query[Order](ctx, tx, "orders", sql, args...)
		return err
	})
	if more = len(orders) > f.Limit; more {
		orders = orders[:f.Limit]
	}
	for i := range orders {
		orders[i].complete()
	}
	return orders, more, err
}

// WaitingOrders lists orders of which nothing is applied yet, like Orders; of
// the filter, only Status, After and Limit count.
func (r *Reader) WaitingOrders(ctx context.Context, f OrderFilter) (orders []WaitingOrder, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		sql, args := f.waiting()
		orders, err = query[WaitingOrder](ctx, tx, "waiting_orders", sql, args...)
		return err
	})
	if more = len(orders) > f.Limit; more {
		orders = orders[:f.Limit]
	}
	for i := range orders {
		orders[i].utc()
	}
	return orders, more, err
}
