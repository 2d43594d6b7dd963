// Package compare finds where a projection in PostgreSQL differs from what the
// reference fold says: every order with its ledger, every parked event, every
// dead letter, every count. It only reads.
package compare

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// Querier is a connection, a pool or a transaction. While the projection is
// being written to, only a transaction of isolation level repeatable read sees
// rows and counts of one moment.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Compare reads the projection that the consumer group made and compares it
// with result. An error means that it could not be read to the end.
func Compare(ctx context.Context, result *reference.Result, db Querier, group string) (*Report, error) {
	report := &Report{Rows: map[string]int{}}
	for _, relation := range []func(context.Context, *reference.Result, Querier, string, *Report) error{
		orders, waitingOrders, orderEvents, parkedEvents, deadLetters, watermarks,
	} {
		if err := relation(ctx, result, db, group, report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// comparison is how one relation is compared. Both sides are sorted alike, so
// that neither has to be in memory.
type comparison[E, G any] struct {
	relation string
	sql      string
	args     []any
	scan     func(pgx.Rows, *G) error
	expected iter.Seq[E]
	order    func(E, G) int
	key      func(E) string
	gotKey   func(G) string
	columns  func(row, E, G)
	// mayLack and mayHave, when set, allow rows on one side only.
	mayLack func(E) bool
	mayHave func(G) bool
}

func (c comparison[E, G]) run(ctx context.Context, db Querier, report *Report) error {
	rows, err := db.Query(ctx, c.sql, c.args...)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.relation, err)
	}
	defer rows.Close()
	next, stop := iter.Pull(c.expected)
	defer stop()
	expected, more := next()
	missing := func() {
		if c.mayLack == nil || !c.mayLack(expected) {
			report.add(Difference{c.relation, c.key(expected), "", "there", "missing"})
		}
		expected, more = next()
	}
	for rows.Next() {
		var got G
		if err := c.scan(rows, &got); err != nil {
			return fmt.Errorf("reading %s: %w", c.relation, err)
		}
		report.Rows[c.relation]++
		for more && c.order(expected, got) < 0 {
			missing()
		}
		if !more || c.order(expected, got) > 0 {
			if c.mayHave == nil || !c.mayHave(got) {
				report.add(Difference{c.relation, c.gotKey(got), "", "missing", "there"})
			}
			continue
		}
		c.columns(row{report, c.relation, c.key(expected)}, expected, got)
		expected, more = next()
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", c.relation, err)
	}
	for more {
		missing()
	}
	return nil
}

func orders(ctx context.Context, result *reference.Result, db Querier, _ string, report *Report) error {
	return comparison[*reference.Order, reference.Order]{
		relation: "orders",
		sql: `SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
			created_at, updated_at, last_event_id, projection_status, coalesce(waiting_for_version, 0),
			kafka_topic, kafka_partition, kafka_offset
			FROM orders ORDER BY order_id`,
		scan: func(rows pgx.Rows, o *reference.Order) error {
			var createdAt, updatedAt *time.Time // NULL while every version was skipped
			err := rows.Scan(&o.OrderID, &o.CustomerID, &o.State, &o.Version, &o.Currency, &o.TotalMinor, &o.PaidMinor,
				&o.RefundedMinor, &createdAt, &updatedAt, &o.LastEventID, &o.Status, &o.WaitingForVersion,
				&o.At.Topic, &o.At.Partition, &o.At.Offset)
			o.CreatedAt, o.UpdatedAt = orZero(createdAt), orZero(updatedAt)
			return err
		},
		expected: ordersOf(result, true),
		order:    byOrderID,
		key:      expectedOrder,
		gotKey:   foundOrder,
		columns: func(r row, e *reference.Order, g reference.Order) {
			column(r, "customer_id", e.CustomerID, g.CustomerID)
			column(r, "state", e.State, g.State)
			column(r, "version", e.Version, g.Version)
			column(r, "currency", e.Currency, g.Currency)
			column(r, "total_minor", e.TotalMinor, g.TotalMinor)
			column(r, "paid_minor", e.PaidMinor, g.PaidMinor)
			column(r, "refunded_minor", e.RefundedMinor, g.RefundedMinor)
			column(r, "created_at", instant(e.CreatedAt), instant(g.CreatedAt))
			column(r, "updated_at", instant(e.UpdatedAt), instant(g.UpdatedAt))
			column(r, "last_event_id", e.LastEventID, g.LastEventID)
			column(r, "projection_status", e.Status, g.Status)
			column(r, "waiting_for_version", e.WaitingForVersion, g.WaitingForVersion)
			column(r, "kafka coordinates", e.At, g.At)
		},
	}.run(ctx, db, report)
}

func waitingOrders(ctx context.Context, result *reference.Result, db Querier, _ string, report *Report) error {
	return comparison[*reference.Order, reference.Order]{
		relation: "waiting_orders",
		sql: `SELECT order_id, projection_status, coalesce(waiting_for_version, 0)
			FROM waiting_orders ORDER BY order_id`,
		scan: func(rows pgx.Rows, o *reference.Order) error {
			return rows.Scan(&o.OrderID, &o.Status, &o.WaitingForVersion)
		},
		expected: ordersOf(result, false),
		order:    byOrderID,
		key:      expectedOrder,
		gotKey:   foundOrder,
		columns: func(r row, e *reference.Order, g reference.Order) {
			column(r, "projection_status", e.Status, g.Status)
			column(r, "waiting_for_version", e.WaitingForVersion, g.WaitingForVersion)
		},
	}.run(ctx, db, report)
}

// ordersOf lists the orders with, or those without, an applied event.
func ordersOf(result *reference.Result, applied bool) iter.Seq[*reference.Order] {
	return func(yield func(*reference.Order) bool) {
		for i := range result.Orders {
			if o := &result.Orders[i]; (o.Version > 0) == applied && !yield(o) {
				return
			}
		}
	}
}

func byOrderID(e *reference.Order, g reference.Order) int {
	return strings.Compare(e.OrderID, g.OrderID)
}
func expectedOrder(e *reference.Order) string { return fmt.Sprintf("%q", e.OrderID) }
func foundOrder(g reference.Order) string     { return fmt.Sprintf("%q", g.OrderID) }

// entry is a ledger entry and whose it is.
type entry struct {
	orderID string
	reference.Entry
}

func (e entry) String() string { return fmt.Sprintf("%q version %d", e.orderID, e.Version) }

func orderEvents(ctx context.Context, result *reference.Result, db Querier, _ string, report *Report) error {
	return comparison[entry, entry]{
		relation: "order_events",
		sql: `SELECT order_id, version, coalesce(event_id, ''), type, occurred_at, digest, state, kafka_partition, kafka_offset
			FROM order_events ORDER BY order_id, version`,
		scan: func(rows pgx.Rows, e *entry) error {
			var digest []byte
			var occurredAt *time.Time
			err := rows.Scan(&e.orderID, &e.Version, &e.EventID, &e.Type, &occurredAt, &digest, &e.State, &e.Partition, &e.Offset)
			e.OccurredAt = orZero(occurredAt)
			copy(e.Digest[:], digest)
			return err
		},
		expected: func(yield func(entry) bool) {
			for i := range result.Orders {
				for _, e := range result.Orders[i].Ledger {
					if !yield(entry{result.Orders[i].OrderID, e}) {
						return
					}
				}
			}
		},
		order: func(e, g entry) int {
			return cmp.Or(strings.Compare(e.orderID, g.orderID), cmp.Compare(e.Version, g.Version))
		},
		key:    entry.String,
		gotKey: entry.String,
		columns: func(r row, e, g entry) {
			column(r, "event_id", e.EventID, g.EventID)
			column(r, "type", e.Type, g.Type)
			column(r, "occurred_at", instant(e.OccurredAt), instant(g.OccurredAt))
			column(r, "digest", hexOf(e.Digest), hexOf(g.Digest))
			column(r, "state", e.State, g.State)
			column(r, "kafka_partition", e.Partition, g.Partition)
			column(r, "kafka_offset", e.Offset, g.Offset)
		},
	}.run(ctx, db, report)
}

func parkedEvents(ctx context.Context, result *reference.Result, db Querier, group string, report *Report) error {
	key := func(p reference.ParkedEvent) string {
		return fmt.Sprintf("%q version %d event %q digest %x", p.OrderID, p.Version, p.EventID, p.Digest)
	}
	return comparison[reference.ParkedEvent, reference.ParkedEvent]{
		relation: "parked_events",
		sql: `SELECT order_id, version, event_id, digest, kafka_topic, kafka_partition, kafka_offset
			FROM parked_events WHERE consumer_group = $1 ORDER BY order_id, version, event_id COLLATE "C", digest`,
		args: []any{group},
		scan: func(rows pgx.Rows, p *reference.ParkedEvent) error {
			var digest []byte
			err := rows.Scan(&p.OrderID, &p.Version, &p.EventID, &digest, &p.At.Topic, &p.At.Partition, &p.At.Offset)
			copy(p.Digest[:], digest)
			return err
		},
		expected: values(result.Parked),
		order: func(e, g reference.ParkedEvent) int {
			return cmp.Or(strings.Compare(e.OrderID, g.OrderID), cmp.Compare(e.Version, g.Version),
				strings.Compare(e.EventID, g.EventID), bytes.Compare(e.Digest[:], g.Digest[:]))
		},
		key:    key,
		gotKey: key,
		columns: func(r row, e, g reference.ParkedEvent) {
			column(r, "kafka coordinates", e.At, g.At)
		},
	}.run(ctx, db, report)
}

// letter is a dead letter as stored: reasons are text.
type letter struct {
	reference.DeadLetter
	reason string
}

func deadLetters(ctx context.Context, result *reference.Result, db Querier, group string, report *Report) error {
	key := func(l reference.DeadLetter) string {
		return fmt.Sprintf("%s offset %d", l.Log, l.Offset)
	}
	return comparison[reference.DeadLetter, letter]{
		relation: "dead_letters",
		sql: `SELECT kafka_topic, topic_id, kafka_partition, kafka_offset, reason, coalesce(order_id, ''),
			coalesce(version, 0), coalesce(event_id, ''), blocks, status
			FROM dead_letters WHERE consumer_group = $1
			ORDER BY kafka_topic COLLATE "C", topic_id, kafka_partition, kafka_offset`,
		args: []any{group},
		scan: func(rows pgx.Rows, l *letter) error {
			var topicID pgtype.UUID
			err := rows.Scan(&l.Log.Topic, &topicID, &l.Log.Partition, &l.Offset, &l.reason, &l.OrderID,
				&l.Version, &l.EventID, &l.Blocks, &l.Status)
			l.Log.TopicID = topicID.Bytes
			return err
		},
		expected: values(result.DeadLetters),
		order: func(e reference.DeadLetter, g letter) int {
			return cmp.Or(strings.Compare(e.Log.Topic, g.Log.Topic), bytes.Compare(e.Log.TopicID[:], g.Log.TopicID[:]),
				cmp.Compare(e.Log.Partition, g.Log.Partition), cmp.Compare(e.Offset, g.Offset))
		},
		key:    key,
		gotKey: func(l letter) string { return key(l.DeadLetter) },
		columns: func(r row, e reference.DeadLetter, g letter) {
			if !result.AllowsLetter(&e, g.DeadLetter) {
				column(r, "status", e.Status, g.Status)
			}
			if result.Decided[g.OrderID] && g.Status != "open" && g.Status != "exhausted" {
				return // what it was refused for then need not be so with the decisions
			}
			column(r, "reason", e.Reason.String(), g.reason)
			column(r, "order_id", e.OrderID, g.OrderID)
			column(r, "version", e.Version, g.Version)
			column(r, "event_id", e.EventID, g.EventID)
			column(r, "blocks", e.Blocks, g.Blocks)
		},
		mayLack: func(e reference.DeadLetter) bool { return result.AllowsMissing(&e) },
		mayHave: func(g letter) bool { return result.AllowsLetter(nil, g.DeadLetter) },
	}.run(ctx, db, report)
}

// watermarks compares the account of every partition. One that the fold does
// not know, because it is empty, may have a watermark, but no counts.
func watermarks(ctx context.Context, result *reference.Result, db Querier, group string, report *Report) error {
	const relation = "projection_watermarks"
	decided, err := operated(ctx, db)
	if err != nil {
		return err
	}
	rows, err := db.Query(ctx, `SELECT kafka_topic, topic_id, kafka_partition, next_offset, ignored, invalid, duplicate,
		stale, conflict, parked, unsupported, illegal, applied, held
		FROM projection_watermarks WHERE consumer_group = $1
		ORDER BY kafka_topic COLLATE "C", topic_id, kafka_partition`, group)
	if err != nil {
		return fmt.Errorf("reading %s: %w", relation, err)
	}
	defer rows.Close()
	seen := map[projection.TopicPartition]bool{}
	for rows.Next() {
		var log projection.TopicPartition
		var topicID pgtype.UUID
		var got reference.Partition
		c := &got.Counts
		if err := rows.Scan(&log.Topic, &topicID, &log.Partition, &got.NextOffset,
			&c[projection.Ignored], &c[projection.Invalid], &c[projection.Duplicate], &c[projection.Stale], &c[projection.Conflict],
			&c[projection.Parked], &c[projection.Unsupported], &c[projection.Illegal], &c[projection.Applied], &c[projection.Held]); err != nil {
			return fmt.Errorf("reading %s: %w", relation, err)
		}
		log.TopicID = topicID.Bytes
		report.Rows[relation]++
		seen[log] = true
		expected, known := result.Partitions[log]
		r := row{report, relation, log.String()}
		if known {
			column(r, "next_offset", expected.NextOffset, got.NextOffset)
		}
		if decided {
			column(r, "records", expected.Counts.Total(), c.Total())
			continue
		}
		for _, outcome := range projection.Outcomes() {
			column(r, outcome.String(), expected.Counts[outcome], c[outcome])
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", relation, err)
	}
	for log := range result.Partitions {
		if !seen[log] {
			report.add(Difference{relation, log.String(), "", "there", "missing"})
		}
	}
	return nil
}

// operated reports whether operators changed what becomes of events: then
// what each was decided at first depends on when they did it.
func operated(ctx context.Context, db Querier) (bool, error) {
	rows, err := db.Query(ctx, `SELECT EXISTS (SELECT FROM audit_log WHERE action IN
		('dlq.redrive', 'dlq.discard', 'gaps.accept', 'gaps.repair', 'decisions.undo', 'orders.reproject'))`)
	if err != nil {
		return false, fmt.Errorf("reading audit_log: %w", err)
	}
	decided, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return false, fmt.Errorf("reading audit_log: %w", err)
	}
	return decided, nil
}

// Decisions reads the operators' decisions that stand, for the fold.
func Decisions(ctx context.Context, db Querier) ([]reference.Decision, error) {
	rows, err := db.Query(ctx, `SELECT order_id, from_version, to_version, substitute, digest, by_coordinates,
		coalesce(kafka_topic, ''), topic_id, coalesce(kafka_partition, 0), coalesce(kafka_offset, 0)
		FROM operator_decisions WHERE undone_at IS NULL ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("reading operator_decisions: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (reference.Decision, error) {
		var d reference.Decision
		var topicID pgtype.UUID
		var digest []byte
		err := row.Scan(&d.OrderID, &d.From, &d.To, &d.Substitute, &digest, &d.ByCoordinates, &d.Log.Topic, &topicID, &d.Log.Partition, &d.Offset)
		d.Log.TopicID = topicID.Bytes
		copy(d.Digest[:], digest)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading operator_decisions: %w", err)
	}
	return all, nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func values[T any](list []T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range list {
			if !yield(v) {
				return
			}
		}
	}
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func hexOf(d reference.Digest) string { return fmt.Sprintf("%x", d[:]) }
