package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/projection/rebuild"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	topic = "orders.events"
	group = "orderprojector"
)

// world is a topic in memory and its projection in a database of the test's own.
type world struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
	log  *projectiontest.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: projectiontest.NewLog(topic, projection.TopicID{7}, 2)}
	w.connect()
	return w
}

// connect goes on with an empty database.
func (w *world) connect() {
	w.t.Helper()
	w.connectTo(testenv.Database(w.t))
}

func (w *world) connectTo(dsn string) {
	w.t.Helper()
	w.dsn = dsn
	var err error
	if w.pool, err = w.open(w.t.Context(), ""); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.pool.Close)
}

func (w *world) open(ctx context.Context, searchPath string) (*pgxpool.Pool, error) {
	return w.openWith(ctx, "search_path", searchPath)
}

func (w *world) openWith(ctx context.Context, setting, value string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(w.dsn)
	if err != nil {
		return nil, err
	}
	if value != "" {
		cfg.ConnConfig.RuntimeParams[setting] = value
	}
	pgstore.PrepareWriter(cfg)
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (w *world) config() rebuild.Config {
	return rebuild.Config{
		Group: group, Topic: topic, Log: w.log, Records: w.log, DB: w.pool, OpenShadow: w.open,
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)), By: projection.By{Actor: "anna", Comment: "test"},
	}
}

func (w *world) add(partition int32, order string, version int, kind, data string) {
	w.log.Append(partition, projection.Record{Key: []byte(order), Timestamp: time.Now(), Value: fmt.Appendf(nil,
		`{"event_id":"%s-%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`, order, version, order, kind, version, data)})
}

// order adds an order of so many versions.
func (w *world) order(partition int32, id string, versions int) {
	w.add(partition, id, 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"1","currency":"EUR"}}`)
	for v := 2; v <= versions; v++ {
		w.add(partition, id, v, "OrderAmended.v1", fmt.Sprintf(`{"total":{"amount":"%d","currency":"EUR"}}`, v))
	}
}

// project applies all of the topic.
func (w *world) project() {
	w.t.Helper()
	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: group, Store: pgstore.New(w.pool), Older: w.log})
	if err != nil {
		w.t.Fatal(err)
	}
	ranges, err := w.log.Ranges(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range ranges {
		handler, start, err := projector.Assign(w.t.Context(), projection.Assignment{
			TopicPartition: r.TopicPartition, Group: group, Committed: projection.NoOffset, LogStart: r.From, LogEnd: r.Until,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		records := slices.DeleteFunc(w.log.Records(r.Partition), func(rec projection.Record) bool { return rec.Offset < start.Offset })
		if err := handler.Handle(w.t.Context(), records); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) exec(sql string) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w *world, sql string) (v T) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w *world) refused(contains string) {
	w.t.Helper()
	_, err := rebuild.Run(w.t.Context(), w.config())
	var refused *projection.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), contains) || refused.Advice == "" {
		w.t.Errorf("got %v, want a refusal that says %q", err, contains)
	}
	if ask[bool](w, `SELECT to_regnamespace('orderprojector_rebuild') IS NOT NULL`) {
		w.t.Error("something is left of a refused rebuild")
	}
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.order(0, "a", 3)
	w.project()
	for _, c := range []struct{ make, remove, says string }{
		{`CREATE TABLE notes (order_id text COLLATE "C" REFERENCES order_rows)`, `DROP TABLE notes`, "a foreign key"},
		{`CREATE MATERIALIZED VIEW states AS SELECT state FROM order_rows`, `DROP MATERIALIZED VIEW states`, "materialized view public.states"},
		{`ALTER TABLE order_rows ENABLE ROW LEVEL SECURITY`, `ALTER TABLE order_rows DISABLE ROW LEVEL SECURITY`, "row-level security"},
		{`CREATE PUBLICATION rows FOR TABLE order_rows`, `DROP PUBLICATION rows`, "publication rows"},
		{`CREATE FUNCTION rows() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM order_rows; END`, `DROP FUNCTION rows()`, "function public.rows()"},
		{`CREATE TABLE more_rows () INHERITS (parked_events)`, `DROP TABLE more_rows`, "parked_events has children"},
		{`INSERT INTO consumer_claims SELECT consumer_group, 'loyalty' FROM projection_watermarks LIMIT 1`, `DELETE FROM consumer_claims`, "is that of loyalty"},
	} {
		w.exec(c.make)
		w.refused(c.says)
		w.exec(c.remove)
	}
	role := testenv.Name(t)
	w.exec(`CREATE ROLE "` + role + `"`)
	t.Cleanup(func() {
		if _, err := w.pool.Exec(context.Background(), `DROP ROLE "`+role+`"`); err != nil {
			t.Error(err)
		}
	})
	nobody, err := w.openWith(t.Context(), "role", role)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	cfg := w.config()
	cfg.DB = nobody
	if _, err := rebuild.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "belongs to role") {
		t.Errorf("a role that owns nothing: %v", err)
	}
	if r, err := rebuild.Run(t.Context(), w.config()); err != nil || r.Status != rebuild.StatusSwapped {
		t.Fatal(r, err)
	}
	w.exec(`CREATE VIEW kept AS SELECT * FROM orderprojector_old.order_rows`)
	w.refused("view public.kept")
	w.exec(`DROP VIEW kept`)
	if _, err := rebuild.Run(t.Context(), w.config()); err != nil {
		t.Error(err)
	}
}

func TestRetentionHasRemovedTheBeginning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.order(0, "old", 2)
	w.order(0, "new", 2)
	w.order(1, "b", 1)
	w.project()
	w.log.Truncate(0, 2)
	w.refused("the first is order old")

	w.connect() // a database that was begun later has nothing to lose
	w.project()
	r, err := rebuild.Run(t.Context(), w.config())
	if err != nil || r.DifferingOrders != 0 || r.Orders != 2 {
		t.Errorf("%+v %v", r, err)
	}

	w.exec(`UPDATE projection_watermarks SET next_offset = 99 WHERE kafka_partition = 1`)
	w.refused("beyond the end of its log")
}

func TestTriggersAndOptionsMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.order(0, "a", 3)
	w.project()
	w.exec(`CREATE TABLE noted (what text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO noted VALUES (TG_NAME); RETURN NULL; END $$;
		CREATE TRIGGER "On it" AFTER INSERT OR UPDATE ON order_rows FOR EACH STATEMENT EXECUTE FUNCTION note();
		CREATE TRIGGER off AFTER UPDATE ON order_rows FOR EACH STATEMENT EXECUTE FUNCTION note();
		ALTER TABLE order_rows DISABLE TRIGGER off;
		CREATE VIEW shielded WITH (security_barrier) AS SELECT order_id AS id, state FROM order_rows WHERE state = 'pending' WITH LOCAL CHECK OPTION;
		CREATE VIEW upon AS SELECT id FROM shielded;
		CREATE INDEX by_customer ON order_rows (customer_id, (state || '!')) WHERE version > 1;
		ALTER TABLE order_rows SET (autovacuum_vacuum_scale_factor = 0.5)`)
	definitions := `SELECT string_agg(d, E'\n' ORDER BY d) FROM (
		SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN ('order_rows'::regclass, 'order_ledger_archive'::regclass, 'parked_events'::regclass)
		UNION ALL SELECT conname::text || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('order_rows'::regclass, 'order_ledger_archive'::regclass, 'parked_events'::regclass)
		UNION ALL SELECT pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE tgrelid = 'order_rows'::regclass
		UNION ALL SELECT oid::regclass::text || coalesce(reloptions::text, '') || pg_get_viewdef(oid) FROM pg_class WHERE oid IN ('shielded'::regclass, 'upon'::regclass, 'orders'::regclass)
		UNION ALL SELECT reloptions::text FROM pg_class WHERE oid = 'order_rows'::regclass
		UNION ALL SELECT attname::text || attnotnull::text || coalesce(pg_get_expr(adbin, adrelid), '') FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid = 'order_rows'::regclass AND attnum > 0) AS all_of_them (d)`
	before := ask[string](w, definitions)
	for _, run := range []func(context.Context, rebuild.Config) (*rebuild.Report, error){rebuild.Run, rebuild.Rollback} {
		w.exec(`DELETE FROM noted`)
		if _, err := run(t.Context(), w.config()); err != nil {
			t.Fatal(err)
		}
		if n := ask[int](w, `SELECT count(*) FROM noted`); n != 0 {
			t.Errorf("filling the new tables has set off triggers %d times", n)
		}
		if now := ask[string](w, definitions); now != before {
			t.Errorf("definitions:\n%s\nand before:\n%s", now, before)
		}
		w.exec(`UPDATE order_rows SET projected_at = now()`)
		if got := ask[string](w, `SELECT string_agg(what, ',') FROM noted`); got != "On it" {
			t.Errorf("triggers: %s", got)
		}
		if n := ask[int](w, `SELECT count(*) FROM upon`); n != 1 {
			t.Errorf("%d rows in a view", n)
		}
	}
}

func TestArchivedEntriesAreCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.order(0, "hot", 200)
	w.order(1, "cool", 3)
	w.project()
	w.exec(`DELETE FROM order_ledger_archive WHERE version = 3`)
	cfg := w.config()
	r, err := rebuild.Run(t.Context(), cfg)
	var differs *rebuild.DifferenceError
	if !errors.As(err, &differs) || differs.Orders != 1 || r.Differences[0].Cause != rebuild.Ledger || !strings.Contains(r.Differences[0].Detail, "version 3") {
		t.Fatalf("%+v %v", r, err)
	}
	cfg.MaxDifferences = 1
	if _, err := rebuild.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](w, `SELECT count(*) FROM order_events WHERE order_id = 'hot'`); n != 200 {
		t.Errorf("%d entries", n)
	}
	w.order(0, "later", 2)
	w.project()
	if _, err := rebuild.Rollback(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](w, `SELECT count(*) FROM order_events WHERE order_id IN ('hot', 'later')`); n != 201 {
		t.Errorf("%d entries after the rollback", n)
	}
}

// halting is a log that stops once before a record of partition 0.
type halting struct {
	*projectiontest.Log
	before        int64 // its offset
	reached, goOn chan struct{}
}

// ReadRange implements projection.Log.
func (h *halting) ReadRange(ctx context.Context, r projection.LogRange, fn func(projection.Record) error) error {
	return h.Log.ReadRange(ctx, r, func(rec projection.Record) error {
		if rec.Partition == 0 && rec.Offset == h.before && h.reached != nil { // one goroutine at a time reads a partition
			close(h.reached)
			h.reached = nil
			select {
			case <-h.goOn:
			case <-ctx.Done():
			}
		}
		return fn(rec)
	})
}

// The connection that holds the lock breaks, and the rebuild gets the lock back; when it is told to stop meanwhile, it stops.
func TestTheLockIsTakenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.order(0, "a", 3)
	w.project()
	log := &halting{Log: w.log, reached: make(chan struct{}), goOn: make(chan struct{})}
	reached := log.reached
	cfg := w.config()
	cfg.Log = log
	ended := make(chan error, 1)
	go func() {
		_, err := rebuild.Run(t.Context(), cfg)
		ended <- err
	}()
	<-reached
	const holder = `SELECT coalesce(min(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	first := ask[int](w, holder)
	w.exec(fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, first))
	testenv.Await(t, 30*time.Second, func() (bool, string) {
		now := ask[int](w, holder)
		return now != 0 && now != first, fmt.Sprintf("process %d has the lock", now)
	})
	var busy *rebuild.BusyError
	if _, err := rebuild.Run(t.Context(), w.config()); !errors.As(err, &busy) || busy.ID != 1 {
		t.Errorf("a second one: %v", err)
	}
	close(log.goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}

	log = &halting{Log: w.log, reached: make(chan struct{}), goOn: make(chan struct{})}
	reached = log.reached
	cfg.Log = log
	go func() {
		_, err := rebuild.Run(t.Context(), cfg)
		ended <- err
	}()
	<-reached
	record, err := rebuild.Abort(t.Context(), w.pool, projection.By{Actor: "ben", Comment: "enough"}, cfg.Logger)
	if err != nil || record.Status != rebuild.StatusAborted {
		t.Errorf("%+v %v", record, err)
	}
	var aborted *rebuild.AbortedError
	if err := <-ended; !errors.As(err, &aborted) || aborted.Actor != "ben" {
		t.Error(err)
	}
	state, err := rebuild.Look(t.Context(), w.pool, 5)
	if err != nil || state.Running || state.Leftovers || state.Rollback != 1 || len(state.Recent) != 2 {
		t.Errorf("%+v %v", state, err)
	}
}

// The database crashes while the new tables are filled, and loses what they had not written yet: that is read again.
func TestTheDatabaseCrashesMeanwhile(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"wal_writer_delay": "10s", "restart_after_crash": "on"}})
	dsn, err := server.CreateDatabase(t.Context(), "crashing")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Migrate(t, dsn)
	w := &world{t: t, log: projectiontest.NewLog(topic, projection.TopicID{7}, 2)}
	w.connectTo(dsn)
	for n := range 200 {
		w.order(int32(n%2), fmt.Sprintf("o-%d", n), 4)
	}
	w.project()
	log := &halting{Log: w.log, before: 300, reached: make(chan struct{}), goOn: make(chan struct{})}
	reached := log.reached
	cfg := w.config()
	cfg.Log, cfg.BatchRecords = log, 20
	cfg.OpenShadow = func(ctx context.Context, searchPath string) (*pgxpool.Pool, error) {
		return w.openWith(ctx, "options", "-c synchronous_commit=off -c search_path="+strings.ReplaceAll(searchPath, " ", ""))
	}
	type result struct {
		report *rebuild.Report
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		r, err := rebuild.Run(t.Context(), cfg)
		ended <- result{r, err}
	}()
	<-reached
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(log.goOn)
	r := <-ended
	if r.err != nil || r.report.DifferingOrders != 0 || r.report.Orders != 200 {
		t.Errorf("%+v %v", r.report, r.err)
	}
	if n := ask[int](w, `SELECT count(*) FROM order_events`); n != 800 {
		t.Errorf("%d events", n)
	}
}
