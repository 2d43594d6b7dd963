//go:build unix

package integration_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/migrations"
	"github.com/orderprojector/orderprojector/outbox"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// outboxShape is what the outbox is made of: columns, constraints, indexes, triggers, settings.
func outboxShape(t testing.TB, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT format('%s.%s %s %s %s %s', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
			pg_get_expr(d.adbin, d.adrelid)) AS shape
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid IN ('outbox'::regclass, 'outbox_failures'::regclass, 'outbox_discarded'::regclass) AND a.attnum > 0
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid::regclass::text LIKE 'outbox%'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'outbox%'
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'outbox'::regclass AND NOT tgisinternal
		UNION ALL SELECT pg_get_functiondef('outbox_notify'::regproc)
		UNION ALL SELECT array_to_string(reloptions, ',') FROM pg_class WHERE oid = 'outbox'::regclass
		ORDER BY shape`)
	must(t, err)
	shape, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return shape
}

func openPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// The tables of the migration and those of EnsureSchema are the same, whichever comes first, and both can come
// again and at the same time. What is stored in them stays.
func TestOutboxSchemasAgree(t *testing.T) {
	t.Parallel()
	migrated := openPool(t, testenv.Database(t))
	must(t, outbox.EnsureSchema(t.Context(), migrated))
	want := outboxShape(t, migrated)

	dsn := testenv.EmptyDatabase(t)
	own := openPool(t, dsn)
	if there, err := outbox.SchemaExists(t.Context(), own); err != nil || there {
		t.Fatalf("an empty database has an outbox: %v, %v", there, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := outbox.EnsureSchema(t.Context(), own); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(want, outboxShape(t, own)); diff != "" {
		t.Errorf("EnsureSchema differs from the migration (-migration +EnsureSchema):\n%s", diff)
	}
	must(t, pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error { return appendCreated(t, tx, "o-1") }))
	testenv.Migrate(t, dsn)
	if diff := cmp.Diff(want, outboxShape(t, own)); diff != "" {
		t.Errorf("the migration after EnsureSchema (-migration +both):\n%s", diff)
	}
	var n int64
	must(t, own.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&n))
	if n != 1 {
		t.Errorf("%d messages after the migration", n)
	}
	// In a transaction of the service's own, too.
	other := openPool(t, testenv.EmptyDatabase(t))
	must(t, pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error { return outbox.EnsureSchema(t.Context(), tx) }))
	must(t, pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error { return appendCreated(t, tx, "o-1") }))
}

// Taking the migration back is refused while messages would be lost with it.
func TestOutboxIsNotDroppedWithMessages(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	pool := openPool(t, dsn)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return appendCreated(t, tx, "o-1") }))
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS)
	must(t, err)
	t.Cleanup(func() { _ = provider.Close() })
	if _, err := provider.DownTo(t.Context(), 7); err == nil || !strings.Contains(err.Error(), "not published") {
		t.Fatalf("messages were dropped: %v", err)
	}
	_, err = pool.Exec(t.Context(), `DELETE FROM outbox`)
	must(t, err)
	_, err = provider.DownTo(t.Context(), 7)
	must(t, err)
	_, err = provider.Up(t.Context())
	must(t, err)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return appendCreated(t, tx, "o-1") }))
}

func appendCreated(t testing.TB, tx pgx.Tx, orderID string) error {
	m, err := outbox.NewMessage(orderID, 1, time.Now(), order.Created{CustomerID: "c", Total: *euros(1)})
	must(t, err)
	return outbox.Append(t.Context(), tx, m)
}

// A message that consumers would refuse is refused before the database hears of it, so that the caller's transaction goes on; one
// version cannot be stored twice.
func TestOutboxRefusesWhatConsumersWould(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testenv.Database(t))
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var invalid *outbox.InvalidError
		if err := outbox.Append(t.Context(), tx, outbox.Message{OrderID: "o-1", Type: "OrderPacked.v1", Version: 1}); !errors.As(err, &invalid) {
			t.Errorf("an invalid message: %v", err)
		}
		return appendCreated(t, tx, "o-1")
	}))
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return appendCreated(t, tx, "o-1") })
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23505" || !strings.Contains(err.Error(), `order "o-1", version 1`) {
		t.Errorf("a version stored twice: %v", err)
	}
	// The raw table keeps the worst out, too.
	for name, values := range map[string]string{
		"no version":        `'e', 'order', 'o-2', 'OrderPacked.v1', '{}'`,
		"not JSON":          `'e', 'order', 'o-2', 'OrderPacked.v1', 'x'`,
		"a broken version":  `'e', 'order', 'o-2', 'OrderPacked.v1', '{"version":1.5}'`,
		"version zero":      `'e', 'order', 'o-2', 'OrderPacked.v1', '{"version":0}'`,
		"another aggregate": `'e', 'customer', 'o-2', 'OrderPacked.v1', '{"version":1}'`,
		"no event ID":       `'', 'order', 'o-2', 'OrderPacked.v1', '{"version":1}'`,
	} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (`+values+`)`); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
}
