package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// exec runs SQL on the database of a test.
func exec(t *testing.T, dsn, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// seed writes, as plain rows, one order of every kind that the commands show.
func seed(t *testing.T, dsn string) {
	t.Helper()
	exec(t, dsn, `
		INSERT INTO order_rows (order_id, version, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
			created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
			kafka_topic, kafka_partition, kafka_offset, archived,
			ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests, ledger_partitions, ledger_offsets)
		VALUES
		('o-1', 3, 'c-7', 'paid', 'EUR', 1999, 1999, 0, '2026-01-01T10:00:00Z', '2026-01-01T10:00:02.000001Z', '2026-01-02T00:00:00Z',
			'e-3', 'ok', NULL, 'orders.events', 2, 12, 1,
			'{2,3}', '{"",e-3}', '{skipped,OrderPaid.v1}', '{pending,paid}', ARRAY[NULL, '2026-01-01T10:00:02.000001Z']::timestamptz[],
			ARRAY[''::bytea, '\x0102'], '{2,2}', '{11,12}'),
		('o-2', 1, 'c-7', 'pending', 'JPY', 500, 0, 0, '2026-01-01T10:00:00Z', '2026-01-01T10:00:00Z', '2026-01-02T00:00:00Z',
			'e-4', 'waiting', 2, 'orders.events', 0, 4, 0,
			'{1}', '{e-4}', '{OrderCreated.v1}', '{pending}', '{2026-01-01T10:00:00Z}', ARRAY['\x03'::bytea], '{0}', '{4}'),
		('o-3', 0, '', '', '', 0, 0, 0, NULL, NULL, '2026-01-02T00:00:00Z', '', 'waiting', 1, 'orders.events', 1, 7, 0,
			'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'),
		('o-4', 1, 'c-8', 'pending', 'KWD', 1234, 0, 0, '2026-01-01T10:00:00Z', '2026-01-01T10:00:00Z', '2026-01-02T00:00:00Z',
			'e-9', 'blocked', 2, 'orders.events', 3, 1, 0,
			'{1}', '{e-9}', '{OrderCreated.v1}', '{pending}', '{2026-01-01T10:00:00Z}', ARRAY['\x09'::bytea], '{3}', '{1}'),
		('o-6', 1, 'c-9', 'pending', 'EUR', 100, 0, 0, '2026-01-01T10:00:00Z', '2026-01-01T10:00:00Z', '2026-01-02T00:00:00Z',
			'e-20', 'ok', NULL, 'orders.events', 4, 1, 0,
			'{1}', '{e-20}', '{OrderCreated.v1}', '{pending}', '{2026-01-01T10:00:00Z}', ARRAY['\x20'::bytea], '{4}', '{1}');
		INSERT INTO held_records (consumer_group, projected, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type,
			key, value, headers, order_id, event_id, version, type, cause, class, failures, counted, held_at, failed_at, due_at)
		SELECT 'orderprojector', true, 'orders.events', '00000000-0000-0000-0000-000000000001', 4, f, '2026-01-01T11:00:00Z', 0,
			convert_to(o, 'UTF8'), '{}', '[{"key": "trace", "value": "eA=="}]', o, e, v, t, c, k, n, n, '2026-01-02T00:00:00Z', '2026-01-02T00:01:00Z', '2026-01-02T00:02:00Z'
		FROM (VALUES ('o-6', 2, 'e-21', 2, 'OrderPaid.v1', 'ERROR: no (SQLSTATE P0001)', 'infrastructure', 3),
		             ('o-6', 3, 'e-22', 3, 'OrderPacked.v1', 'it waits behind an earlier held record of its order', 'queued', 0),
		             ('o-7', 4, 'e-23', 1, 'OrderCreated.v1', 'ERROR: canceling statement due to lock timeout (SQLSTATE 55P03)', 'transient', 1))
			AS x (o, f, e, v, t, c, k, n);
		INSERT INTO order_ledger_archive VALUES
		('o-1', 1, 'e-1', 'OrderCreated.v1', 'pending', '2026-01-01T10:00:00Z', '\x01', 2, 10);
		INSERT INTO parked_events (order_id, version, event_id, digest, type, occurred_at, consumer_group, kafka_topic, topic_id,
			kafka_partition, kafka_offset, kafka_timestamp, key, value, headers, parked_at)
		SELECT o, v, e, '\x05', 'OrderPacked.v1', '2026-01-01T11:00:00Z', 'orderprojector', 'orders.events',
			'00000000-0000-0000-0000-000000000001', p, f, '2026-01-01T11:00:00Z', NULL, '{}', '[]', '2026-01-02T00:00:00Z'
		FROM (VALUES ('o-2', 3, 'e-6', 0, 5), ('o-3', 4, 'e-8', 1, 7), ('o-4', 3, 'e-11', 3, 3)) AS x (o, v, e, p, f);
		INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, headers,
			order_id, version, event_id, reason, detail, blocks, status, first_failed_at)
		VALUES
		('orderprojector', 'orders.events', '00000000-0000-0000-0000-000000000001', 3, 2, '2026-01-01T11:00:00Z', '[]',
			'o-4', 2, 'e-10', 'illegal', 'OrderShipped is not allowed in state pending', true, 'open', '2026-01-02T00:00:00Z'),
		('orderprojector', 'orders.events', '00000000-0000-0000-0000-000000000001', 3, 9, '2026-01-01T11:00:00Z', '[]',
			'o-5', NULL, NULL, 'invalid', 'not JSON', false, 'open', '2026-01-02T00:00:00Z'),
		('orderprojector', 'orders.events', '00000000-0000-0000-0000-000000000001', 3, 10, '2026-01-01T11:00:00Z', '[]',
			'o-1', 9, 'e-12', 'invalid', 'closed already', false, 'discarded', '2026-01-02T00:00:00Z')`)
}

func TestOrdersCommands(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	seed(t, dsn)
	env := map[string]string{"DATABASE_URL": dsn}
	for name, line := range map[string]string{
		"orders-get":                 "orders get o-1",
		"orders-get.json":            "orders get o-1 -o json",
		"orders-get.yaml":            "orders get o-1 -o yaml",
		"orders-get-waiting":         "orders get o-2",
		"orders-get-unapplied":       "orders get o-3",
		"orders-get-unapplied.json":  "orders get o-3 -o json",
		"orders-get-blocked":         "orders get o-4",
		"orders-get-blocked.json":    "orders get o-4 -o json",
		"orders-list":                "orders list",
		"orders-list.json":           "orders list --customer c-7 -o json",
		"orders-list.yaml":           "orders list --state paid -o yaml",
		"orders-list-blocked":        "orders list --status blocked",
		"orders-list-none.json":      "orders list --state delivered -o json",
		"orders-list-unapplied":      "orders list --unapplied",
		"orders-list-unapplied.json": "orders list --unapplied --status waiting -o json",
		"timeline":                   "orders timeline o-1",
		"timeline.json":              "orders timeline o-1 -o json",
		"timeline-waiting":           "orders timeline o-2",
		"timeline-unapplied":         "orders timeline o-3",
		"timeline-blocked":           "orders timeline o-4",
		"timeline-blocked.json":      "orders timeline o-4 -o json",
		"timeline-letter-only":       "orders timeline o-5",
		"orders-get-held":            "orders get o-6",
		"orders-get-held.json":       "orders get o-6 -o json",
		"orders-get-held-unapplied":  "orders get o-7",
		"timeline-held":              "orders timeline o-6",
		"timeline-held.json":         "orders timeline o-6 -o json",
		"held-list":                  "held list",
		"held-list.json":             "held list --order o-6 -o json",
		"held-list-heads.yaml":       "held list --heads --overdue -o yaml",
		"held-show":                  "held show 1",
		"held-show-queued":           "held show 2 --hex",
		"held-show.json":             "held show 1 -o json",
	} {
		got := run(t, env, strings.Fields(line)...)
		if got.code != ExitOK || got.stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", line, got.code, got.stderr)
		}
		golden(t, name, got.stdout)
	}
	for _, line := range []string{"orders get o-5", "orders get none", "orders timeline none", "held show 99", "held show 1 --group loyalty"} {
		if got := run(t, env, strings.Fields(line)...); got.code != ExitNotFound || got.stdout != "" {
			t.Errorf("%s: exit %d, stdout %q", line, got.code, got.stdout)
		}
	}
}

func TestListPagesHoldEachOrderOnce(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	seed(t, dsn)
	env := map[string]string{"DATABASE_URL": dsn}
	var ids []string
	after := ""
	for page := 0; page < 9; page++ {
		got := run(t, env, "orders", "list", "--limit", "2", "--after", after, "-o", "json")
		var orders []struct {
			OrderID string `json:"order_id"`
		}
		if err := json.Unmarshal([]byte(got.stdout), &orders); err != nil {
			t.Fatal(err, got.stderr)
		}
		for _, o := range orders {
			ids = append(ids, o.OrderID)
			after = o.OrderID
		}
		if more := strings.Contains(got.stderr, fmt.Sprintf("--after %q", after)); !more {
			break
		}
	}
	if diff := cmp.Diff([]string{"o-1", "o-2", "o-4", "o-6"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": testenv.EmptyDatabase(t)}
	expect := func(line string, code int, stdout, stderr string) {
		t.Helper()
		got := run(t, env, strings.Fields(line)...)
		if got.code != code || !strings.Contains(got.stdout, stdout) || !strings.Contains(got.stderr, stderr) {
			t.Errorf("%s: exit %d\nstdout: %s\nstderr: %s\nwant %d, %q, %q", line, got.code, got.stdout, got.stderr, code, stdout, stderr)
		}
	}
	expect("orders list", ExitFailed, "", "hint: run: orderprojector migrate up")
	expect("migrate status", ExitOK, "pending  00001_orders.sql", "")
	expect("migrate down --yes", ExitOK, "", "nothing to do")
	expect("migrate up", ExitOK, "applied  00001_orders.sql", "")
	expect("migrate up", ExitOK, "", "up to date")
	expect("orders list", ExitOK, "ORDER", "")
	expect("migrate down", ExitUsage, "", "--yes")
	expect("orders list", ExitOK, "ORDER", "") // nothing happened
	expect("migrate down --yes", ExitOK, "rolled back", "")
	expect("orders list", ExitFailed, "", "the database is older than this program")
	expect("migrate down --to 9 --yes", ExitOK, "", "")
	expect("migrate up", ExitOK, "applied  00010_held_records.sql", "1. Stop every program of the old version")
	expect("migrate down --to 0 --yes", ExitOK, "00001_orders.sql", "")
	expect("migrate status", ExitOK, "pending  00001_orders.sql", "")
	expect("migrate up -o json", ExitOK, `"state": "applied"`, "")
	expect("migrate status -o yaml", ExitOK, "state: applied", "")
}

func TestASchemaFromTheFutureIsRefused(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	exec(t, dsn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)`)
	env := map[string]string{"DATABASE_URL": dsn}
	got := run(t, env, "orders", "list")
	if got.code != ExitFailed || !strings.Contains(got.stderr, "newer than this program") || !strings.Contains(got.stderr, "--allow-newer-schema") {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
	if got := run(t, env, "orders", "list", "--allow-newer-schema"); got.code != ExitOK {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
	if got := run(t, env, "migrate", "status"); got.code != ExitOK || !strings.Contains(got.stderr, "newer than this program") {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
}

func TestASchemaCanRequireANewerProgram(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	exec(t, dsn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true); UPDATE schema_requirement SET oldest_program = 999`)
	env := map[string]string{"DATABASE_URL": dsn}
	for _, line := range []string{"orders list", "orders list --allow-newer-schema", "held retry --all --allow-newer-schema"} {
		got := run(t, env, strings.Fields(line)...)
		if got.code != ExitFailed || !strings.Contains(got.stderr, "it needs one that knows schema version 999") || !strings.Contains(got.stderr, "hint: stop this program") {
			t.Errorf("%s: exit %d, stderr %q", line, got.code, got.stderr)
		}
	}
	exec(t, dsn, `DROP TABLE schema_requirement`) // as before version 10: nothing is required
	if got := run(t, env, "orders", "list", "--allow-newer-schema"); got.code != ExitOK {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
}

func TestMigrationsStartedAtOnceDoNotCollide(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": testenv.EmptyDatabase(t)}
	results := make(chan result)
	for range 4 {
		go func() { results <- run(t, env, "migrate", "up") }()
	}
	applied := 0
	for range 4 {
		got := <-results
		if got.code != ExitOK {
			t.Errorf("exit %d, stderr %q", got.code, got.stderr)
		}
		applied += len(regexp.MustCompile(`(?m)applied  00001_`).FindAllString(got.stdout, -1))
	}
	if applied != 1 {
		t.Errorf("the first migration was applied %d times", applied)
	}
}
