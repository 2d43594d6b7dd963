package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// contract are the columns of order_rows that anybody may rely on; the wall clock and the
// revision are not among them.
var contract = []string{
	"version", "customer_id", "state", "currency", "total_minor", "paid_minor", "refunded_minor", "created_at", "updated_at", "last_event_id",
	"projection_status", "waiting_for_version", "kafka_topic", "kafka_partition", "kafka_offset",
}

var ledger = []string{
	"archived", "ledger_versions", "ledger_event_ids", "ledger_types", "ledger_states", "ledger_times", "ledger_digests", "ledger_partitions", "ledger_offsets",
}

// Rows of version 0 that hold nothing back are there to be locked, and mean nothing.
const (
	liveRows   = `(SELECT * FROM live.order_rows WHERE version > 0 OR projection_status <> 'ok')`
	shadowRows = `(SELECT * FROM shadow.order_rows WHERE version > 0 OR projection_status <> 'ok')`
)

// comparison compares the two sets of tables. What differs is kept in the shadow's table of differences, one
// row per order; expected marks what only the shadow can have yet, because it has read partitions further than the live tables.
type comparison struct {
	schemas
	group  string
	topic  string
	id     uuid.UUID
	beyond []int32 // partitions that the shadow reads to their ends
	// starts are where the shadow began, by partition: the log does not hold what is below.
	startPartitions []int32
	starts          []int64
}

func rowOf(alias string, columns []string) string {
	return "ROW(" + alias + "." + strings.Join(columns, ", "+alias+".") + ")"
}

// rows is the statement that compares order_rows. from joins the live rows (l) with the shadow's (s).
func (c *comparison) rows(from string) string {
	var details []string
	for _, column := range contract[1:] {
		details = append(details, fmt.Sprintf(
			`CASE WHEN l.%[1]s IS DISTINCT FROM s.%[1]s THEN format('%[1]s: expected %%s, found %%s', coalesce(s.%[1]s::text, 'nothing'), coalesce(l.%[1]s::text, 'nothing')) END`, column))
	}
	return c.sql(`INSERT INTO shadow.differences (order_id, cause, detail, expected)
		SELECT coalesce(l.order_id, s.order_id),
			CASE WHEN l.order_id IS NULL THEN 'missing_row' WHEN s.order_id IS NULL THEN 'no_such_order'
				WHEN l.version < s.version THEN 'behind' WHEN l.version > s.version THEN 'ahead'
				WHEN ` + rowOf("l", contract) + ` IS DISTINCT FROM ` + rowOf("s", contract) + ` THEN 'column' ELSE 'ledger' END,
			CASE WHEN l.order_id IS NULL THEN format('the topic gives version %s, %s', s.version, nullif(s.state, ''))
				WHEN s.order_id IS NULL THEN format('the row is at version %s, %s', l.version, nullif(l.state, ''))
				WHEN l.version <> s.version THEN format('version: expected %s, found %s', s.version, l.version)
				ELSE concat_ws('; ', ` + strings.Join(details, ", ") + `) END,
			s.order_id IS NOT NULL AND (l.order_id IS NULL OR l.version < s.version OR l.version = s.version AND l.projection_status <> s.projection_status)
				AND (s.version > 0 AND s.kafka_partition = ANY ($1::integer[])
					OR EXISTS (SELECT FROM shadow.parked_events p WHERE p.order_id = s.order_id AND p.kafka_partition = ANY ($1::integer[]))
					OR EXISTS (SELECT FROM shadow.dead_letters d WHERE d.order_id = s.order_id AND d.kafka_partition = ANY ($1::integer[])))
		FROM ` + from + `
		WHERE (l.order_id IS NOT NULL OR s.order_id IS NOT NULL)
			AND (l.order_id IS NULL OR s.order_id IS NULL
				OR ` + rowOf("l", contract) + ` IS DISTINCT FROM ` + rowOf("s", contract) + `
				OR ` + rowOf("l", ledger) + ` IS DISTINCT FROM ` + rowOf("s", ledger) + `)`)
}

// beside are the statements that compare what stands beside the rows. some limits them to orders of $2.
func (c *comparison) beside(some bool) (archive, parked string) {
	l, s, group := "", "", ""
	if some {
		l, s = ` WHERE order_id = ANY ($2::text[])`, ` WHERE order_id = ANY ($2::text[])`
		group = ` AND order_id = ANY ($2::text[])`
	}
	archive = c.sql(`INSERT INTO shadow.differences (order_id, cause, detail, expected)
		SELECT DISTINCT ON (1) coalesce(l.order_id, s.order_id), 'ledger',
			format('version %s: expected %s, found %s', coalesce(l.version, s.version), coalesce(s.event_id, 'nothing'), coalesce(l.event_id, 'nothing')),
			l.order_id IS NULL AND s.kafka_partition = ANY ($1::integer[])
		FROM (SELECT * FROM live.order_ledger_archive` + l + `) l
		FULL JOIN (SELECT * FROM shadow.order_ledger_archive` + s + `) s ON s.order_id = l.order_id AND s.version = l.version
		WHERE ROW(l.*) IS DISTINCT FROM ROW(s.*)
		ORDER BY 1, coalesce(l.version, s.version)
		ON CONFLICT DO NOTHING`)
	parked = c.sql(`INSERT INTO shadow.differences (order_id, cause, detail, expected)
		SELECT DISTINCT ON (1) coalesce(l.order_id, s.order_id), 'parked',
			format('version %s, event %s: %s', coalesce(l.version, s.version), coalesce(l.event_id, s.event_id),
				CASE WHEN l.order_id IS NULL THEN 'waits for its turn, and is not parked' ELSE 'is parked, and does not wait' END),
			l.order_id IS NULL AND s.kafka_partition = ANY ($1::integer[])
		FROM (SELECT * FROM live.parked_events WHERE consumer_group = $` + map[bool]string{false: "2", true: "3"}[some] + group + `) l
		FULL JOIN (SELECT * FROM shadow.parked_events` + s + `) s
			ON s.order_id = l.order_id AND s.version = l.version AND s.event_id = l.event_id AND s.digest = l.digest
		WHERE l.order_id IS NULL OR s.order_id IS NULL
		ORDER BY 1, coalesce(l.version, s.version)
		ON CONFLICT DO NOTHING`)
	return archive, parked
}

// everything compares all orders.
func (c *comparison) everything(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, c.sql(`DELETE FROM shadow.differences`)); err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	from := liveRows + ` l FULL JOIN ` + shadowRows + ` s ON s.order_id = l.order_id`
	archive, parked := c.beside(false)
	for _, s := range []struct {
		what, sql string
		args      []any
	}{
		{"order_rows", c.rows(from), []any{c.beyond}},
		{"order_ledger_archive", archive, []any{c.beyond}},
		{"parked_events", parked, []any{c.beyond, c.group}},
	} {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return fmt.Errorf("comparing %s: %w", s.what, err)
		}
	}
	return nil
}

// again compares what differed before, the orders given, and those that the shadow holds back and the live
// tables do not hold back alike: whatever operators did meanwhile shows there.
func (c *comparison) again(ctx context.Context, tx pgx.Tx, orders []string) error {
	rows, err := tx.Query(ctx, c.sql(`SELECT order_id FROM shadow.differences
		UNION SELECT unnest($1::text[])
		UNION SELECT s.order_id FROM shadow.order_rows s LEFT JOIN live.order_rows l ON l.order_id = s.order_id
			WHERE s.projection_status <> 'ok' AND (l.order_id IS NULL OR l.version <> s.version OR l.projection_status <> s.projection_status)`), orders)
	if err != nil {
		return fmt.Errorf("comparing again: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("comparing again: %w", err)
	}
	if _, err := tx.Exec(ctx, c.sql(`DELETE FROM shadow.differences`)); err != nil {
		return fmt.Errorf("comparing again: %w", err)
	}
	from := `unnest($2::text[]) AS u (order_id)
		LEFT JOIN ` + liveRows + ` l ON l.order_id = u.order_id COLLATE "C"
		LEFT JOIN ` + shadowRows + ` s ON s.order_id = u.order_id COLLATE "C"`
	archive, parked := c.beside(true)
	for _, s := range []struct {
		what, sql string
		args      []any
	}{
		{"order_rows", c.rows(from), []any{c.beyond, ids}},
		{"order_ledger_archive", archive, []any{c.beyond, ids}},
		{"parked_events", parked, []any{c.beyond, ids, c.group}},
	} {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return fmt.Errorf("comparing %s again: %w", s.what, err)
		}
	}
	return nil
}

// count writes into the report how much differs, and the first of it.
func (c *comparison) count(ctx context.Context, tx pgx.Tx, r *Report, listed int) error {
	r.Causes, r.Differences = []CauseCount{}, []Difference{}
	err := tx.QueryRow(ctx, c.sql(`SELECT count(*) FILTER (WHERE NOT expected), count(*) FILTER (WHERE expected) FROM shadow.differences`)).
		Scan(&r.DifferingOrders, &r.Beyond)
	if err != nil {
		return fmt.Errorf("counting the differences: %w", err)
	}
	rows, err := tx.Query(ctx, c.sql(`SELECT cause, count(*) FROM shadow.differences WHERE NOT expected GROUP BY cause ORDER BY cause`))
	if err != nil {
		return fmt.Errorf("counting the differences: %w", err)
	}
	if r.Causes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[CauseCount]); err != nil {
		return fmt.Errorf("counting the differences: %w", err)
	}
	if rows, err = tx.Query(ctx, c.sql(`SELECT order_id, cause, coalesce(detail, '') FROM shadow.differences WHERE NOT expected ORDER BY order_id LIMIT $1`), listed); err != nil {
		return fmt.Errorf("listing the differences: %w", err)
	}
	if r.Differences, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Difference]); err != nil {
		return fmt.Errorf("listing the differences: %w", err)
	}
	return c.countLetters(ctx, tx, r, listed)
}
