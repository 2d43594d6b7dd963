package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// pageOrders is how many orders are read and compared at once.
const pageOrders = 1000

// stored is what the database holds of one order.
type stored struct {
	row     *reference.Order // nil when there is none
	parked  []reference.ParkedEvent
	letters []letter
	decided []int64 // IDs of the operators' decisions that stand
}

// letter is a dead letter as stored.
type letter struct {
	reference.DeadLetter
	id             int64
	reason, detail string
}

// snapshot reads one moment of the database.
type snapshot struct {
	tx    pgx.Tx
	group string
	topic string
	id    projection.TopicID
}

// orderIDs returns the next orders behind one, of those that belong to the selection.
func (s *snapshot) orderIDs(ctx context.Context, c *chooser, after string) ([]string, error) {
	rows, err := s.tx.Query(ctx, `SELECT order_id FROM order_rows
		WHERE order_id > $1 AND ($2 = '' OR md5($3 || order_id) COLLATE "C" < $2)
		ORDER BY order_id LIMIT $4`, after, c.below, c.prefix, pageOrders)
	if err != nil {
		return nil, fmt.Errorf("reading orders: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("reading orders: %w", err)
	}
	return ids, nil
}

// read reads everything of some orders.
func (s *snapshot) read(ctx context.Context, ids []string) (map[string]*stored, error) {
	all := make(map[string]*stored, len(ids))
	for _, id := range ids {
		all[id] = &stored{}
	}
	for _, part := range []struct {
		what string
		read func(context.Context, []string, map[string]*stored) error
	}{
		{"order_rows", s.rows}, {"order_events", s.ledgers}, {"parked_events", s.parked},
		{"dead_letters", s.letters}, {"operator_decisions", s.decisions},
	} {
		if err := part.read(ctx, ids, all); err != nil {
			return nil, fmt.Errorf("reading %s: %w", part.what, err)
		}
	}
	return all, nil
}

func (s *snapshot) rows(ctx context.Context, ids []string, all map[string]*stored) error {
	rows, err := s.tx.Query(ctx, `SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
		created_at, updated_at, last_event_id, projection_status, coalesce(waiting_for_version, 0), kafka_topic, kafka_partition, kafka_offset
		FROM order_rows WHERE order_id = ANY ($1::text[])`, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		o := &reference.Order{}
		var created, updated *time.Time // NULL while every version was skipped
		if err := rows.Scan(&o.OrderID, &o.CustomerID, &o.State, &o.Version, &o.Currency, &o.TotalMinor, &o.PaidMinor, &o.RefundedMinor,
			&created, &updated, &o.LastEventID, &o.Status, &o.WaitingForVersion, &o.At.Topic, &o.At.Partition, &o.At.Offset); err != nil {
			return err
		}
		o.CreatedAt, o.UpdatedAt = orZero(created), orZero(updated)
		if o.Version > 0 || o.Status != "ok" { // others are placeholders that nobody sees
			all[o.OrderID].row = o
		}
	}
	return rows.Err()
}

func (s *snapshot) ledgers(ctx context.Context, ids []string, all map[string]*stored) error {
	rows, err := s.tx.Query(ctx, `SELECT order_id, version, coalesce(event_id, ''), type, occurred_at, coalesce(digest, ''), state, kafka_partition, kafka_offset
		FROM order_events WHERE order_id = ANY ($1::text[]) ORDER BY order_id, version`, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var e reference.Entry
		var occurred *time.Time
		var digest []byte
		if err := rows.Scan(&id, &e.Version, &e.EventID, &e.Type, &occurred, &digest, &e.State, &e.Partition, &e.Offset); err != nil {
			return err
		}
		e.OccurredAt = orZero(occurred)
		copy(e.Digest[:], digest)
		if row := all[id].row; row != nil {
			row.Ledger = append(row.Ledger, e)
		}
	}
	return rows.Err()
}

func (s *snapshot) parked(ctx context.Context, ids []string, all map[string]*stored) error {
	rows, err := s.tx.Query(ctx, `SELECT order_id, version, event_id, digest, kafka_topic, kafka_partition, kafka_offset
		FROM parked_events WHERE order_id = ANY ($1::text[]) AND consumer_group = $2`, ids, s.group)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p reference.ParkedEvent
		var digest []byte
		if err := rows.Scan(&p.OrderID, &p.Version, &p.EventID, &digest, &p.At.Topic, &p.At.Partition, &p.At.Offset); err != nil {
			return err
		}
		copy(p.Digest[:], digest)
		all[p.OrderID].parked = append(all[p.OrderID].parked, p)
	}
	return rows.Err()
}

const letterColumns = `id, kafka_partition, kafka_offset, reason, detail, coalesce(order_id, ''), coalesce(version, 0), coalesce(event_id, ''), blocks, status`

func (s *snapshot) letters(ctx context.Context, ids []string, all map[string]*stored) error {
	letters, err := s.lettersWhere(ctx, `order_id = ANY ($4::text[])`, ids)
	for _, l := range letters {
		all[l.OrderID].letters = append(all[l.OrderID].letters, l)
	}
	return err
}

// lettersWithoutOrder reads up to limit letters that name no order, behind one.
func (s *snapshot) lettersWithoutOrder(ctx context.Context, after int64, limit int) ([]letter, error) {
	return s.lettersWhere(ctx, `order_id IS NULL AND id > $4 ORDER BY id LIMIT $5`, after, limit)
}

func (s *snapshot) lettersWhere(ctx context.Context, condition string, args ...any) ([]letter, error) {
	rows, err := s.tx.Query(ctx, `SELECT `+letterColumns+` FROM dead_letters
		WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND `+condition,
		append([]any{s.group, s.topic, pgtype.UUID{Bytes: s.id, Valid: true}}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (letter, error) {
		var l letter
		l.Log.Topic, l.Log.TopicID = s.topic, s.id
		err := row.Scan(&l.id, &l.Log.Partition, &l.Offset, &l.reason, &l.detail, &l.OrderID, &l.Version, &l.EventID, &l.Blocks, &l.Status)
		return l, err
	})
}

func (s *snapshot) decisions(ctx context.Context, ids []string, all map[string]*stored) error {
	rows, err := s.tx.Query(ctx, `SELECT order_id, id FROM operator_decisions
		WHERE order_id = ANY ($1::text[]) AND undone_at IS NULL ORDER BY id`, ids)
	if err != nil {
		return err
	}
	var order string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&order, &id}, func() error {
		all[order].decided = append(all[order].decided, id)
		return nil
	})
	return err
}

// held returns which orders of the projection have held records, or letters that wait and were held records: the row of such an order is
// behind the topic.
func (s *snapshot) held(ctx context.Context) (map[string]bool, error) {
	rows, err := s.tx.Query(ctx, `SELECT order_id FROM held_records WHERE consumer_group = $1 AND kafka_topic = $2
		UNION SELECT order_id FROM dead_letters WHERE consumer_group = $1 AND kafka_topic = $2 AND was_held AND status IN ('open', 'exhausted') AND order_id IS NOT NULL`,
		s.group, s.topic)
	if err != nil {
		return nil, fmt.Errorf("reading held_records: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	held := make(map[string]bool, len(ids))
	for _, id := range ids {
		held[id] = true
	}
	return held, err
}

// account is the watermark of a partition.
type account struct {
	next   int64
	counts projection.Counts
}

// accounts reads the watermarks of the topic as it is now. other reports
// whether there are some of an older topic of the same name.
func (s *snapshot) accounts(ctx context.Context) (marks map[int32]account, other bool, err error) {
	rows, err := s.tx.Query(ctx, `SELECT topic_id, kafka_partition, next_offset, ignored, invalid, duplicate, stale, conflict, parked, unsupported, illegal, applied, held
		FROM projection_watermarks WHERE consumer_group = $1 AND kafka_topic = $2`, s.group, s.topic)
	if err != nil {
		return nil, false, fmt.Errorf("reading the watermarks: %w", err)
	}
	defer rows.Close()
	marks = map[int32]account{}
	for rows.Next() {
		var id pgtype.UUID
		var partition int32
		var a account
		c := &a.counts
		if err := rows.Scan(&id, &partition, &a.next, &c[projection.Ignored], &c[projection.Invalid], &c[projection.Duplicate],
			&c[projection.Stale], &c[projection.Conflict], &c[projection.Parked], &c[projection.Unsupported], &c[projection.Illegal],
			&c[projection.Applied], &c[projection.Held]); err != nil {
			return nil, false, fmt.Errorf("reading the watermarks: %w", err)
		}
		if id.Bytes != s.id {
			other = true
			continue
		}
		marks[partition] = a
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("reading the watermarks: %w", err)
	}
	return marks, other, nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
