package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// Where sessions are shared, the store does the same work, without prepared statements.
func TestStoreOnSharedSessionsConforms(t *testing.T) {
	projectiontest.Conformance(t, func(t *testing.T) projection.Store {
		return pgstore.New(openPool(t, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}))
	})
}

func openPool(t *testing.T, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	pgstore.PrepareWriter(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The settings of shared sessions hold inside of transactions, and leave nothing behind.
func TestSettingsGoWithTransactionsOfSharedSessions(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		c.ConnConfig.RuntimeParams["lock_timeout"] = "4321"
		c.ConnConfig.RuntimeParams["statement_timeout"] = "it's"
	})
	settings := func(q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (lock, seqScan string) {
		t.Helper()
		if err := q.QueryRow(t.Context(), `SELECT current_setting('lock_timeout'), current_setting('enable_seqscan')`).Scan(&lock, &seqScan); err != nil {
			t.Fatal(err)
		}
		return lock, seqScan
	}
	err := pgstore.New(pool).InTx(t.Context(), func(context.Context, projection.Tx) error { return nil })
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "22023" {
		t.Errorf("a setting with a quote in it: %v", err)
	}
	pool = openPool(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		c.ConnConfig.RuntimeParams["lock_timeout"] = "4321"
	})
	inside := false
	err = pgstore.New(pool).InTx(t.Context(), func(_ context.Context, tx projection.Tx) error {
		inside = true
		lock, seqScan := settings(tx.(interface {
			QueryRow(context.Context, string, ...any) pgx.Row
		}))
		if lock != "4321ms" || seqScan != "off" {
			t.Errorf("inside: lock_timeout %s, enable_seqscan %s", lock, seqScan)
		}
		return nil
	})
	if err != nil || !inside {
		t.Fatal(err)
	}
	if lock, seqScan := settings(pool); lock != "0" || seqScan != "on" {
		t.Errorf("outside: lock_timeout %s, enable_seqscan %s", lock, seqScan)
	}
}

// A statement that was prepared before the schema changed is void once; the
// connections that hold such statements are dropped. One that fails on a fresh connection, too, is
// something else.
func TestStaleStatementsHealOnAFreshConnection(t *testing.T) {
	store, pool := openStore(t)
	ask := func() (oid uint32, err error) {
		err = store.InTx(t.Context(), func(_ context.Context, tx projection.Tx) error {
			var v any
			q := tx.(interface {
				QueryRow(context.Context, string, ...any) pgx.Row
			})
			if err := q.QueryRow(t.Context(), `SELECT pg_backend_pid()::oid`).Scan(&oid); err != nil {
				return err
			}
			if err := q.QueryRow(t.Context(), `SELECT * FROM changing`).Scan(&v); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		return oid, err
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE changing (a text)`)
	before, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	exec(`ALTER TABLE changing ALTER a TYPE varchar(80)`)
	if _, err = ask(); err == nil || store.Classify(err) != projection.Transient {
		t.Errorf("after the type changed: %v", err)
	}
	after, err := ask()
	if err != nil || after == before {
		t.Errorf("the next attempt, on session %d after %d: %v", after, before, err)
	}

	pool.Reset()
	unsupported := func() error {
		return store.InTx(t.Context(), func(_ context.Context, tx projection.Tx) error {
			_, err := tx.(interface {
				Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
			}).Exec(t.Context(), `DO $$ BEGIN RAISE feature_not_supported; END $$`)
			return err
		})
	}
	if err := unsupported(); store.Classify(err) != projection.Unhealthy {
		t.Errorf("what is not supported on a fresh connection: %v, %v", err, store.Classify(err))
	}
}

// On shared sessions nobody has the right to publish alone. Who takes a letter has it for a while.
func TestCopiesOnSharedSessionsAreTakenInTurns(t *testing.T) {
	store, pool := openStore(t)
	shared := openPool(t, func(c *pgxpool.Config) {
		c.ConnConfig = pool.Config().ConnConfig
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	})
	one, other := mustOpenQueue(t, shared), mustOpenQueue(t, shared)
	addLetters(t, store, deadLetter(1, "a"), deadLetter(2, "b"), deadLetter(3, "c"))
	taken := due(t, one, 2, 1<<20)
	if got := offsets(taken); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("one takes %v", got)
	}
	if got := offsets(due(t, other, 10, 1<<20)); !slices.Equal(got, []int64{3}) {
		t.Errorf("the other takes %v", got)
	}
	settle(t, one, lettercopy.Receipt{Letter: taken[0], Form: lettercopy.Whole, Topic: "orders-dlt"})
	if _, err := pool.Exec(t.Context(), `UPDATE letter_copies SET due_at = due_at - interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	if got := offsets(due(t, other, 10, 1<<20)); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("due a minute later: %v", got)
	}
	var locks int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&locks); err != nil || locks != 0 {
		t.Errorf("%d advisory locks are held: %v", locks, err)
	}
}
