package rebuild

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Kind says where the shadow comes from.
type Kind string

// The kinds.
const (
	KindRebuild  Kind = "rebuild"  // new tables, filled from the start of the topic
	KindRollback Kind = "rollback" // the old set, caught up
)

// Status says how a rebuild stands.
type Status string

// The statuses. The first two are of one that runs, or died.
const (
	StatusFilling    Status = "filling"
	StatusComparing  Status = "comparing"
	StatusSwapped    Status = "swapped"  // the tables were exchanged
	StatusCompared   Status = "compared" // a dry run
	StatusDiffers    Status = "differs"  // more than may
	StatusAborted    Status = "aborted"
	StatusFailed     Status = "failed"
	StatusRolledBack Status = "rolled_back" // swapped, and exchanged back since
)

// Record is one rebuild as it is stored.
type Record struct {
	ID               int64      `json:"id"`
	Kind             Kind       `json:"kind"`
	Group            string     `json:"group"`
	Topic            string     `json:"topic"`
	Status           Status     `json:"status"`
	DryRun           bool       `json:"dry_run"`
	MaxDifferences   int64      `json:"max_diff"`
	Records          int64      `json:"records"`
	Total            int64      `json:"total"`
	DifferingOrders  *int64     `json:"differing_orders"` // null: not compared
	DifferingLetters *int64     `json:"differing_letters"`
	Generation       *int64     `json:"generation"`
	Actor            string     `json:"actor"`
	Comment          string     `json:"comment"`
	Failure          *string    `json:"failure"`
	StartedAt        time.Time  `json:"started_at"`
	UpdatedAt        time.Time  `json:"updated_at"`
	FinishedAt       *time.Time `json:"finished_at"`
}

const recordColumns = `id, kind, consumer_group, kafka_topic, status, dry_run, max_differences, records, total,
	differing_orders, differing_letters, generation, actor, comment, failure, started_at, updated_at, finished_at`

// State is what there is of rebuilds in a database.
type State struct {
	// Running is set while a process holds the rebuild's lock.
	Running bool `json:"running"`
	// Leftovers says that tables are left of a rebuild that died; the next one, or an abort, removes them.
	Leftovers bool `json:"leftovers"`
	// Rollback is the rebuild that a rollback would undo, or 0.
	Rollback int64    `json:"rollback"`
	Recent   []Record `json:"rebuilds"` // newest first
}

// Look reads the state, with the newest rebuilds.
func Look(ctx context.Context, db *pgxpool.Pool, newest int) (State, error) {
	var state State
	s, err := findSchemas(ctx, db)
	if err != nil {
		return state, err
	}
	err = transact(ctx, db, shortTimeout, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND objsubid = 1 AND classid = ($1::bigint >> 32)::oid AND objid = ($1::bigint & 4294967295)::oid)`, int64(rebuildLock)).Scan(&state.Running)
		if err != nil {
			return err
		}
		shadow, err := exists(ctx, tx, s.shadow, "rebuild_set")
		if err != nil {
			return err
		}
		state.Leftovers = shadow && !state.Running
		if old, err := exists(ctx, tx, s.old, "rebuild_set"); err != nil {
			return err
		} else if old {
			if err := tx.QueryRow(ctx, s.sql(`SELECT rebuild_id FROM old.rebuild_set`)).Scan(&state.Rollback); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, s.sql(`SELECT `+recordColumns+` FROM live.rebuilds ORDER BY id DESC LIMIT $1`), newest)
		if err != nil {
			return err
		}
		state.Recent, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Record])
		return err
	})
	if err != nil {
		return state, fmt.Errorf("reading the state of rebuilds: %w", err)
	}
	return state, nil
}

// Deadlines of a transaction's statements.
const (
	shortTimeout = 30 * time.Second
	longTimeout  = 6 * time.Hour // to compare, and to analyse, takes as long as the tables are large
)

// transact runs work in a transaction whose statements end after a timeout. Its search_path is
// empty, so that every statement has to name its schema.
func transact(ctx context.Context, db *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	return transactAs(ctx, db, pgx.ReadCommitted, timeout, work)
}

func transactAs(ctx context.Context, db *pgxpool.Pool, level pgx.TxIsoLevel, timeout time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('search_path', '', true), set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
			set_config('idle_in_transaction_session_timeout', '60000', true), set_config('synchronous_commit', 'on', true),
			set_config('jit', 'off', true)`, // it takes seconds to compile the comparison, which takes less
			fmt.Sprint(timeout.Milliseconds()), fmt.Sprint(shortTimeout.Milliseconds()))
		if err != nil {
			return err
		}
		return work(tx)
	})
}

func schemaVersion(ctx context.Context, tx pgx.Tx, s schemas) (version int64, err error) {
	err = tx.QueryRow(ctx, s.sql(`SELECT coalesce(max(version_id), 0) FROM live.goose_db_version WHERE is_applied`)).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("reading the schema version: %w", err)
	}
	return version, nil
}
