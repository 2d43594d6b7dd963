package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/loyalty"
	"github.com/orderprojector/orderprojector/domain/order"
)

// PointsBalance is what a customer has.
type PointsBalance struct {
	CustomerID string     `json:"customer_id"`
	Points     string     `json:"points"` // a whole number, without bounds
	Orders     int64      `json:"orders"`
	Entries    int64      `json:"entries"`
	Latest     *time.Time `json:"latest_recorded_at"`
}

// PointsBalance adds up a customer's entries. It returns ErrNotFound for a customer without any.
func (r *Reader) PointsBalance(ctx context.Context, customer string) (b PointsBalance, err error) {
	b.CustomerID = customer
	err = r.pool.QueryRow(ctx, `SELECT coalesce(sum(delta), 0)::text, count(DISTINCT order_id), count(*), max(recorded_at)
		FROM points_ledger WHERE customer_id = $1`, customer).Scan(&b.Points, &b.Orders, &b.Entries, &b.Latest)
	if err != nil {
		return b, fmt.Errorf("reading points_ledger: %w", err)
	}
	if b.Entries == 0 {
		return b, fmt.Errorf("customer %q has no points: %w", customer, ErrNotFound)
	}
	return b, nil
}

// PointsEntry is a row of the relation points_ledger. Its JSON names are the column names.
type PointsEntry struct {
	Source         string    `json:"source"`
	CustomerID     *string   `json:"customer_id"` // null until it is known
	OrderID        string    `json:"order_id"`
	Delta          int64     `json:"delta"`
	Kind           string    `json:"kind"`
	AmountMinor    int64     `json:"amount_minor"`
	Currency       string    `json:"currency"`
	EventID        string    `json:"event_id"`
	OccurredAt     time.Time `json:"occurred_at"`
	RecordedAt     time.Time `json:"recorded_at"`
	KafkaTopic     string    `json:"kafka_topic"`
	KafkaPartition int32     `json:"kafka_partition"`
	KafkaOffset    int64     `json:"kafka_offset"`
}

// PointsFilter selects entries. Empty fields select all.
type PointsFilter struct {
	Customer string
	Order    string
	Unowned  bool   // only those of which the customer is not known
	After    string // only sources behind it
	Limit    int
}

// PointsEntries reads entries in the order of their sources. more says that there are others behind the last one.
func (r *Reader) PointsEntries(ctx context.Context, f PointsFilter) (entries []PointsEntry, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		entries, err = query[PointsEntry](ctx, tx, "points_ledger", `
			SELECT source, customer_id, order_id, delta, kind, amount_minor, currency, event_id, occurred_at, recorded_at,
			       kafka_topic, kafka_partition, kafka_offset
			FROM points_ledger
			WHERE ($1 = '' OR customer_id = $1) AND ($2 = '' OR order_id = $2) AND (NOT $3 OR customer_id IS NULL) AND source > $4
			ORDER BY source LIMIT $5`, f.Customer, f.Order, f.Unowned, f.After, f.Limit+1)
		return err
	})
	if len(entries) > f.Limit {
		return entries[:f.Limit], true, err
	}
	return entries, false, err
}

// PointsDifference is an order whose points are not what the projection says.
type PointsDifference struct {
	OrderID  string   `json:"order_id"`
	Problems []string `json:"problems"`
	// Projected is null for an order that is not in orders, Ledger for one without entries.
	Projected *PointsOfOrder `json:"projected"`
	Ledger    *PointsOfOrder `json:"ledger"`
	// Status is the order's projection_status: one that is not ok may have to come yet.
	Status string `json:"projection_status,omitempty"`
}

// PointsOfOrder is what was paid and refunded of an order, and what it has earned.
type PointsOfOrder struct {
	CustomerID    string `json:"customer_id"`
	Currency      string `json:"currency"`
	PaidMinor     int64  `json:"paid_minor"`
	RefundedMinor int64  `json:"refunded_minor"`
	Points        int64  `json:"points"`
}

// PointsCheck is what comparing the ledger with the projection found.
type PointsCheck struct {
	Orders  int64 `json:"orders"` // with a payment, a refund or an entry
	Differ  int64 `json:"orders_differing"`
	Unowned int64 `json:"orders_without_customer"`
	// Apart lists partitions that the projector and loyalty have not read equally far.
	Apart []PointsPosition `json:"positions_apart"`
}

// PointsPosition is how far a partition is read by both.
type PointsPosition struct {
	KafkaTopic     string `json:"kafka_topic"`
	KafkaPartition int32  `json:"kafka_partition"`
	Projected      int64  `json:"projected"`
	Loyalty        int64  `json:"loyalty"`
}

// CheckPoints compares the ledger with the orders, all at the same moment, and calls differs for each order that
// differs, by ID. The groups tell how far each side has read.
func (r *Reader) CheckPoints(ctx context.Context, projector, consumer string, differs func(PointsDifference) error) (check PointsCheck, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		check.Apart, err = query[PointsPosition](ctx, tx, "projection_watermarks", `
			WITH newest AS (
			    SELECT DISTINCT ON (consumer_group, kafka_topic, kafka_partition) consumer_group, kafka_topic, topic_id, kafka_partition, next_offset
			    FROM projection_watermarks WHERE consumer_group IN ($1, $2)
			    ORDER BY consumer_group, kafka_topic, kafka_partition, updated_at DESC)
			SELECT kafka_topic, kafka_partition, coalesce(p.next_offset, 0) AS projected, coalesce(l.next_offset, 0) AS loyalty
			FROM (SELECT * FROM newest WHERE consumer_group = $1) p
			FULL JOIN (SELECT * FROM newest WHERE consumer_group = $2) l USING (kafka_topic, topic_id, kafka_partition)
			WHERE p.next_offset IS DISTINCT FROM l.next_offset
			ORDER BY kafka_topic, kafka_partition`, projector, consumer)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT order_id, o.customer_id, o.currency, o.paid_minor, o.refunded_minor, o.projection_status,
			       l.customer_id, l.customers, l.currency, l.currencies, l.paid, l.refunded, l.points
			FROM (SELECT order_id, customer_id, currency, paid_minor, refunded_minor, projection_status FROM orders
			      WHERE paid_minor > 0 OR refunded_minor > 0) o
			FULL JOIN (SELECT order_id, min(customer_id) AS customer_id, count(DISTINCT coalesce(customer_id, '')) AS customers,
			                  min(currency) AS currency, count(DISTINCT currency) AS currencies,
			                  coalesce(sum(amount_minor) FILTER (WHERE kind = 'payment'), 0)::bigint AS paid,
			                  coalesce(sum(amount_minor) FILTER (WHERE kind = 'refund'), 0)::bigint AS refunded,
			                  sum(delta)::bigint AS points
			           FROM points_ledger GROUP BY order_id) l USING (order_id)
			ORDER BY order_id`)
		if err != nil {
			return fmt.Errorf("reading orders and points_ledger: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			d, err := scanPoints(rows)
			if err != nil {
				return fmt.Errorf("reading orders and points_ledger: %w", err)
			}
			check.Orders++
			if d.Ledger != nil && d.Ledger.CustomerID == "" {
				check.Unowned++
			}
			if len(d.Problems) == 0 {
				continue
			}
			check.Differ++
			if err := differs(d); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return check, err
}

// scanPoints reads one order from both sides and says how they differ.
func scanPoints(rows pgx.Rows) (PointsDifference, error) {
	var (
		d                                                 PointsDifference
		customer, currency, status                        *string
		paid, refunded                                    *int64
		owner, ledgerCurrency                             *string
		owners, currencies, ledgerPaid, ledgerBack, total *int64
	)
	err := rows.Scan(&d.OrderID, &customer, &currency, &paid, &refunded, &status,
		&owner, &owners, &ledgerCurrency, &currencies, &ledgerPaid, &ledgerBack, &total)
	if err != nil {
		return d, err
	}
	problem := func(format string, args ...any) { d.Problems = append(d.Problems, fmt.Sprintf(format, args...)) }
	if status != nil {
		d.Status = *status
		d.Projected = &PointsOfOrder{CustomerID: value(customer), Currency: value(currency), PaidMinor: value(paid), RefundedMinor: value(refunded)}
		account := loyalty.Account{Totals: map[string]loyalty.Totals{value(currency): {Paid: value(paid), Refunded: value(refunded)}}}
		if d.Projected.Points, err = account.Points(); err != nil {
			problem("%v", err)
		}
	}
	if total != nil {
		d.Ledger = &PointsOfOrder{CustomerID: value(owner), Currency: value(ledgerCurrency), PaidMinor: value(ledgerPaid), RefundedMinor: value(ledgerBack), Points: *total}
	}
	switch {
	case d.Ledger == nil:
		problem("the projection has a payment, the ledger none")
		return d, nil
	case d.Projected == nil:
		problem("the ledger has entries, the projection no payment")
		return d, nil
	}
	l, p := d.Ledger, d.Projected
	if value(currencies) > 1 {
		problem("the ledger has %d currencies", *currencies)
	} else if l.Currency != p.Currency {
		problem("%s was paid, and %s in the ledger", p.Currency, l.Currency)
	}
	amount := func(minor int64) string { return order.Money{Minor: minor, Currency: p.Currency}.String() }
	if l.PaidMinor != p.PaidMinor {
		problem("%s were paid, %s in the ledger", amount(p.PaidMinor), amount(l.PaidMinor))
	}
	if l.RefundedMinor != p.RefundedMinor {
		problem("%s were refunded, %s in the ledger", amount(p.RefundedMinor), amount(l.RefundedMinor))
	}
	if l.Points != p.Points {
		problem("%d points are earned, %d in the ledger", p.Points, l.Points)
	}
	switch {
	case l.CustomerID == "":
		problem("the ledger does not know the customer")
	case value(owners) > 1:
		problem("the ledger's entries are of %d customers", *owners)
	case l.CustomerID != p.CustomerID:
		problem("ordered by %s, the points are %s's", p.CustomerID, l.CustomerID)
	}
	return d, nil
}
