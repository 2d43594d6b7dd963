package rebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// writersTimeout bounds each wait for a lock that readers do not notice. It is longer than the second after
// which a vacuum gives way.
const writersTimeout = 3 * time.Second

// errOldSnapshot says that somebody's transaction holds a snapshot from before the shadow was
// complete. It would see the exchanged tables as they were then: empty, or half full.
var errOldSnapshot = errors.New("a transaction holds a snapshot from before the rebuilt tables were complete")

// lockLive keeps everybody from writing. Locks are taken in the order in which members take them, so
// that nobody waits in a circle.
func lockLive(ctx context.Context, tx pgx.Tx, s schemas) error {
	if err := lockTimeout(ctx, tx, writersTimeout); err != nil {
		return err
	}
	for _, table := range []string{"projection_watermarks", "order_rows", "order_ledger_archive", "parked_events", "dead_letters", "held_records", "operator_decisions"} {
		if _, err := tx.Exec(ctx, `LOCK TABLE `+quote(s.live, table)+` IN EXCLUSIVE MODE`); err != nil {
			return fmt.Errorf("locking %s against writers: %w", table, err)
		}
	}
	return nil
}

func lockTimeout(ctx context.Context, tx pgx.Tx, d time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, fmt.Sprint(max(1, d.Milliseconds())))
	return err
}

// exchange makes the shadow live. Writers are locked out already; readers are for the last steps only, which
// change the catalogue and nothing else.
func (r *run) exchange(ctx context.Context, tx pgx.Tx) (readersWait time.Time, err error) {
	if err := r.stillOurs(ctx, tx); err != nil {
		return readersWait, err
	}
	var horizon string
	if err := tx.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&horizon); err != nil {
		return readersWait, fmt.Errorf("reading the current snapshot: %w", err)
	}
	// Nobody reads the shadow, but a vacuum may be at work there.
	for _, table := range projected {
		if _, err := tx.Exec(ctx, `LOCK TABLE `+quote(r.shadow, table)+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return readersWait, fmt.Errorf("locking the rebuilt tables: %w", err)
		}
	}
	if err := r.complete(ctx, tx); err != nil {
		return readersWait, err
	}
	if err := r.keepOld(ctx, tx); err != nil {
		return readersWait, err
	}
	// Triggers of others may be at work in these tables.
	if err := within(ctx, tx, r.path, func() error {
		if err := r.settleLetters(ctx, tx, r.cfg.By.Actor, fmt.Sprintf("rebuild %d: the topic does not give it", r.report.ID)); err != nil {
			return err
		}
		return r.watermarks(ctx, tx)
	}); err != nil {
		return readersWait, err
	}
	if err := r.holdAgain(ctx, tx); err != nil {
		return readersWait, err
	}
	if err := r.conclusion(ctx, tx); err != nil {
		return readersWait, err
	}
	views, err := dependentViews(ctx, tx, r.schemas)
	if err != nil {
		return readersWait, err
	}
	drop, create, err := triggers(ctx, tx, r.schemas)
	if err != nil {
		return readersWait, err
	}
	if err := oldSnapshots(ctx, tx, horizon); err != nil {
		return readersWait, err
	}
	return r.move(ctx, tx, views, drop, create)
}

// move exchanges the tables. Each wait for a lock takes from the same allowance, which bounds how
// long readers wait. Views come first, as readers lock a view before what it is made of.
func (r *run) move(ctx context.Context, tx pgx.Tx, views []dependentView, drop, create []string) (began time.Time, err error) {
	began = time.Now()
	patiently := func(statement string) error {
		if err := lockTimeout(ctx, tx, r.cfg.LockTimeout-time.Since(began)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement)
		return err
	}
	for _, v := range views {
		// To give a view the owner that it has does nothing but lock it, and only it.
		if err := patiently(`ALTER VIEW ` + v.name + ` OWNER TO ` + quote(v.owner)); err != nil {
			return began, fmt.Errorf("locking the view %s: %w", v.name, err)
		}
	}
	for _, table := range exchanged {
		if err := patiently(`LOCK TABLE ` + quote(r.live, table) + ` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return began, fmt.Errorf("locking %s: %w", table, err)
		}
	}
	statements := append([]string{}, drop...)
	statements = append(statements, `ALTER TABLE `+quote(r.shadow, "order_rows")+` ALTER COLUMN revision SET DEFAULT 0`)
	for _, table := range exchanged {
		statements = append(statements,
			`ALTER TABLE `+quote(r.live, table)+` SET SCHEMA `+quote(r.old),
			`ALTER TABLE `+quote(r.shadow, table)+` SET SCHEMA `+quote(r.live))
	}
	for _, v := range views {
		statements = append(statements, v.create())
	}
	for _, statement := range append(statements, create...) {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return began, fmt.Errorf("exchanging the tables: %s: %w", statement, err)
		}
	}
	// What is left of the shadow was copied to where it is needed.
	return began, dropSet(ctx, tx, r.shadow)
}

// stillOurs makes sure that no other rebuild has cleaned up after this one, and that the tables are of the same schema.
func (r *run) stillOurs(ctx context.Context, tx pgx.Tx) error {
	var running bool
	var actor, comment *string
	if err := tx.QueryRow(ctx, r.sql(`SELECT finished_at IS NULL, abort_actor, abort_comment FROM live.rebuilds WHERE id = $1 FOR UPDATE`), r.report.ID).
		Scan(&running, &actor, &comment); err != nil {
		return fmt.Errorf("reading the state of the rebuild: %w", err)
	}
	switch {
	case !running:
		return errors.New("another rebuild has cleaned up after this one")
	case actor != nil:
		return &AbortedError{Actor: *actor, Comment: *comment}
	}
	version, err := schemaVersion(ctx, tx, r.schemas)
	if err != nil {
		return err
	}
	if version != r.version {
		return fmt.Errorf("the schema was migrated meanwhile, from version %d to %d: run the rebuild again", r.version, version)
	}
	var behind int
	if err := tx.QueryRow(ctx, r.sql(`SELECT count(*) FROM live.projection_watermarks l
		LEFT JOIN shadow.projection_watermarks s ON s.consumer_group = l.consumer_group AND s.kafka_topic = l.kafka_topic
			AND s.topic_id = l.topic_id AND s.kafka_partition = l.kafka_partition
		WHERE l.consumer_group = $1 AND l.kafka_topic = $2 AND l.topic_id = $3 AND l.next_offset > coalesce(s.next_offset, 0)`),
		r.group, r.topic, r.id).Scan(&behind); err != nil {
		return fmt.Errorf("comparing the watermarks: %w", err)
	}
	if behind > 0 {
		return fmt.Errorf("the rebuilt tables are behind the live ones in %d partitions, which were perhaps added meanwhile: run the rebuild again", behind)
	}
	return nil
}

// complete gives the shadow what is not of this group's fold: ages of parked events, those of other
// groups, and the grants.
func (r *run) complete(ctx context.Context, tx pgx.Tx) error {
	for _, statement := range []string{
		`UPDATE shadow.parked_events s SET parked_at = l.parked_at FROM live.parked_events l
			WHERE l.order_id = s.order_id AND l.version = s.version AND l.event_id = s.event_id AND l.digest = s.digest AND l.parked_at <> s.parked_at`,
		`UPDATE shadow.dead_letters s SET first_failed_at = l.first_failed_at, last_failed_at = l.last_failed_at
			FROM live.dead_letters l WHERE ` + sameRecord + ` AND s.status = 'open'`,
	} {
		if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
			return fmt.Errorf("completing the rebuilt tables: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, r.sql(`INSERT INTO shadow.parked_events SELECT * FROM live.parked_events WHERE consumer_group <> $1 ON CONFLICT DO NOTHING`), r.group); err != nil {
		return fmt.Errorf("completing the rebuilt tables: %w", err)
	}
	statements, err := grants(ctx, tx, r.schemas)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("giving the rebuilt tables their grants: %w", err)
		}
	}
	return nil
}

// keepOld makes the place for the tables that are live now, with all that it takes to catch them up
// one day: their watermarks, the letters that are open, and the decisions that they were folded with.
func (r *run) keepOld(ctx context.Context, tx pgx.Tx) error {
	if err := dropSet(ctx, tx, r.old); err != nil {
		return err
	}
	if err := createSchema(ctx, tx, r.schemas, r.old); err != nil {
		return err
	}
	for _, table := range []string{"projection_watermarks", "dead_letters", "held_records"} {
		if err := createLike(ctx, tx, r.schemas, r.old, table); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO old.projection_watermarks SELECT * FROM live.projection_watermarks
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3`, []any{r.group, r.topic, r.id}},
		{`INSERT INTO old.dead_letters OVERRIDING USER VALUE SELECT * FROM live.dead_letters
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND status IN ('open', 'exhausted') ORDER BY id`, []any{r.group, r.topic, r.id}},
		{`UPDATE old.dead_letters SET status = 'open'`, nil},
		// The fold has decided the records that are held now. They belong to the tables that leave.
		{`WITH held AS (DELETE FROM live.held_records WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 RETURNING *)
			INSERT INTO old.held_records OVERRIDING USER VALUE SELECT * FROM held ORDER BY id`, []any{r.group, r.topic, r.id}},
		{`CREATE TABLE old.decisions_seen AS SELECT id, undone_at IS NOT NULL AS undone FROM live.operator_decisions`, nil},
		{`CREATE TABLE old.letters_closed (letter_id bigint PRIMARY KEY)`, nil},
		{`CREATE TABLE old.rebuild_set AS SELECT $1::bigint AS rebuild_id, 'old'::text AS kind, $2::bigint AS schema_version,
			$3::text AS consumer_group, $4::text AS kafka_topic, $5::uuid AS topic_id`, []any{r.report.ID, r.version, r.group, r.topic, r.id}},
	} {
		if _, err := tx.Exec(ctx, r.sql(s.sql), s.args...); err != nil {
			return fmt.Errorf("keeping the tables that are live now: %w", err)
		}
	}
	return nil
}

// watermarks makes the live watermarks those of the fold. Members notice the generation, drop
// what they remember and begin again there.
func (r *run) watermarks(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, r.sql(`SELECT coalesce(max(generation), 0) + 1 FROM live.projection_watermarks
		WHERE consumer_group = $1 AND kafka_topic = $2`), r.group, r.topic).Scan(&r.report.Generation)
	if err != nil {
		return fmt.Errorf("reading the watermarks: %w", err)
	}
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{`UPDATE live.projection_watermarks l
			SET next_offset = s.next_offset, applied = s.applied, duplicate = s.duplicate, stale = s.stale, conflict = s.conflict, parked = s.parked,
				invalid = s.invalid, unsupported = s.unsupported, illegal = s.illegal, ignored = s.ignored, lost_offsets = s.lost_offsets,
				held = s.held, updated_at = now()
			FROM shadow.projection_watermarks s
			WHERE l.consumer_group = s.consumer_group AND l.kafka_topic = s.kafka_topic AND l.topic_id = s.topic_id AND l.kafka_partition = s.kafka_partition`, nil},
		{`INSERT INTO live.projection_watermarks SELECT * FROM shadow.projection_watermarks ON CONFLICT DO NOTHING`, nil},
		{`UPDATE live.projection_watermarks SET generation = $4 WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3`,
			[]any{r.group, r.topic, r.id, r.report.Generation}},
		// The notes of how many events were counted by when are of the other tables.
		{`DELETE FROM live.breaker_events WHERE consumer_group = $1`, []any{r.group}},
	} {
		if _, err := tx.Exec(ctx, r.sql(s.sql), s.args...); err != nil {
			return fmt.Errorf("exchanging the watermarks: %w", err)
		}
	}
	return nil
}

// holdAgain brings back what was held when the tables of an old set were live. It is tried at once.
func (r *run) holdAgain(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, r.sql(`UPDATE shadow.held_records SET due_at = now()`)); err != nil {
		return fmt.Errorf("bringing held records back: %w", err)
	}
	if _, err := tx.Exec(ctx, r.sql(`INSERT INTO live.held_records OVERRIDING USER VALUE SELECT * FROM shadow.held_records ORDER BY id`)); err != nil {
		return fmt.Errorf("bringing held records back: %w", err)
	}
	return nil
}

// oldSnapshots refuses while a transaction of several statements holds a snapshot from before horizon.
// Those that wait for a lock are the writers that wait for this one.
func oldSnapshots(ctx context.Context, tx pgx.Tx, horizon string) error {
	var pid *int64
	var application *string
	err := tx.QueryRow(ctx, `SELECT min(pid), min(application_name) FROM (
			SELECT pid, application_name FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
				AND age(backend_xmin) > age(($1::xid8)::xid) AND wait_event_type IS DISTINCT FROM 'Lock'
				AND backend_type = 'client backend' AND (state <> 'active' OR xact_start < query_start)
			ORDER BY xact_start LIMIT 1
		) AS oldest`, horizon).Scan(&pid, &application)
	if err != nil {
		return fmt.Errorf("looking for old snapshots: %w", err)
	}
	if pid != nil {
		return fmt.Errorf("%w: that of process %d (%s)", errOldSnapshot, *pid, *application)
	}
	return nil
}

// passes reports whether an attempt to exchange failed for a reason that passes.
func passes(err error) bool {
	return errors.Is(err, errOldSnapshot) || errors.Is(err, errTooFarBehind) || errors.Is(err, errFreezeTooLong) || transient(err)
}

// transient reports failures of the database that pass: a lock that was not to be had in time, a deadlock, an outage.
func transient(err error) bool {
	var pgErr *pgconn.PgError
	var connectErr *pgconn.ConnectError
	var netErr net.Error
	switch {
	case errors.As(err, &pgErr):
		class := (&pgstore.Store{}).Classify(pgErr)
		return class == projection.Transient || class == projection.Locked
	case errors.As(err, &connectErr), errors.As(err, &netErr):
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}
