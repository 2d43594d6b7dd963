package pgstore

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// The list of blocked, or of waiting, orders goes by small indexes. It reads no table of all orders.
func TestOrdersAreListedByStatusWithoutReadingAll(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`INSERT INTO order_rows (order_id, version, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
			created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
			kafka_topic, kafka_partition, kafka_offset, archived,
			ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests, ledger_partitions, ledger_offsets)
		SELECT 'o-' || n, 1, 'c-7', 'pending', 'JPY', 500, 0, 0, now(), now(), now(), 'e-4',
			CASE n % 5000 WHEN 0 THEN 'waiting' WHEN 1 THEN 'blocked' ELSE 'ok' END, CASE WHEN n % 5000 < 2 THEN 2 END, 'orders.events', 0, 4, 0,
			'{1}', '{e-4}', '{OrderCreated.v1}', '{pending}', '{2026-01-01T10:00:00Z}', ARRAY['\x03'::bytea], '{0}', '{4}'
		FROM generate_series(1, 100000) n`,
		`INSERT INTO held_records (consumer_group, projected, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type,
			key, value, headers, order_id, event_id, version, type, cause)
		SELECT 'g', true, 't', '00000000-0000-0000-0000-000000000001', 4, f, now(), 0, 'k', '{}', '[]', 'o-' || f * 70, 'e', 2, 't', 'c' FROM generate_series(1, 100) f`,
		`ANALYZE`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(sql string, args []any) {
		t.Helper()
		rows, err := conn.Query(t.Context(), `EXPLAIN `+sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on order_rows") {
			t.Errorf("%s %v: %v\n%s", sql, args, err, text)
		}
	}
	for _, status := range []string{"", "ok", "waiting", "blocked"} {
		f := OrderFilter{Status: status, Limit: 50}
		explain(f.orders())
		explain(f.waiting())
	}
	explain(blockedOrders, nil)
	for status, want := range map[string]int{"waiting": 20, "blocked": 20 + 100, "ok": 1000} {
		f := OrderFilter{Status: status, Limit: 999}
		sql, args := f.orders()
		rows, err := conn.Query(t.Context(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Order])
		if err != nil || len(found) != want {
			t.Errorf("%s: %d orders, want %d (%v)", status, len(found), want, err)
		}
	}
}
