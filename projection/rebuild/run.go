package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	// closeEnough is how many offsets may be left to read when the comparison begins, and when the members are made
	// to wait for the last of them.
	closeEnough = 5_000
	// tooFar is how many offsets the members may have got ahead until they wait; with more, they do not wait any longer.
	tooFar = 50_000
	// cleanUpTimeout bounds what is done after the rebuild is over, or was interrupted.
	cleanUpTimeout = time.Minute
	// settle is longer than a member's sweep takes to come: what differs is looked at once more after it.
	settle       = 6 * time.Second
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	firstFreeze  = 4 * time.Second
	longFreeze   = 20 * time.Second
	saveInterval = 2 * time.Second
	// compareRounds bounds how often everything is compared again at once because the members went on too far meanwhile.
	compareRounds = 3
)

var (
	errTooFarBehind  = errors.New("the members read faster than the rebuilt tables follow")
	errFreezeTooLong = errors.New("it took too long to catch up with the members while they waited")
	errDryRun        = errors.New("dry run")
)

// run is one rebuild.
type run struct {
	comparison
	cfg     Config
	kind    Kind
	report  *Report
	began   time.Time
	version int64 // of the schema
	fill    *filler
	refold  *projection.Operator
	ranges  []projection.LogRange
	end     map[int32]int64 // of the log, at the start
	saved   time.Time
	phase   atomic.Value // Phase
	goal    atomic.Int64 // offsets to pass, as known so far
}

// Run rebuilds the tables and exchanges them. The report says what was found, also with a
// *DifferenceError; other errors are a *BusyError, an *AbortedError, a *projection.RefusedError, and those of the infrastructure. After every error
// the live tables are what they were.
func Run(ctx context.Context, cfg Config) (*Report, error) { return start(ctx, cfg, KindRebuild) }

// Rollback catches up the tables that the last exchange replaced, and exchanges them back.
func Rollback(ctx context.Context, cfg Config) (*Report, error) {
	cfg.MaxDifferences = -1 // they are the reason for it
	return start(ctx, cfg, KindRollback)
}

func start(ctx context.Context, cfg Config, kind Kind) (*Report, error) {
	if err := cfg.prepare(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, kind: kind, began: time.Now()}
	r.phase.Store(Filling)
	r.group, r.topic, r.beyond = cfg.Group, cfg.Topic, []int32{} // an array, not NULL
	r.report = &Report{Kind: kind, Topic: cfg.Topic, Group: cfg.Group, DryRun: cfg.DryRun, Causes: []CauseCount{}, Differences: []Difference{}}
	var err error
	if r.schemas, err = findSchemas(ctx, cfg.DB); err != nil {
		return nil, err
	}
	lease, err := acquire(ctx, cfg.DB, r.live, cfg.Logger)
	if err != nil {
		return nil, err
	}
	defer lease.release(ctx)
	err = transact(ctx, cfg.DB, shortTimeout, func(tx pgx.Tx) error { return obstacles(ctx, tx, r.schemas) })
	if err != nil {
		return nil, err
	}
	if err := cleanUp(ctx, cfg.DB, r.schemas, cfg.Logger); err != nil {
		return nil, err
	}
	if err := r.register(ctx); err != nil {
		return nil, err
	}
	watched := lease.watch(ctx, r.report.ID)
	err = r.work(watched)
	if watched.Err() != nil && err != nil && !errors.Is(err, context.Cause(watched)) {
		err = fmt.Errorf("%w: %w", context.Cause(watched), err)
	}
	return r.report, r.conclude(ctx, err)
}

// register checks what can be checked at once, and stores that the rebuild runs.
func (r *run) register(ctx context.Context) error {
	ranges, err := r.bounds(ctx)
	if err != nil {
		return err
	}
	if len(ranges) == 0 {
		return fmt.Errorf("topic %s has no partitions", r.topic)
	}
	r.ranges, r.id, r.end = ranges, uuid.UUID(ranges[0].TopicID), map[int32]int64{}
	for _, p := range ranges {
		r.end[p.Partition] = p.Until
		r.startPartitions, r.starts = append(r.startPartitions, p.Partition), append(r.starts, p.From)
	}
	return transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) (err error) {
		if r.version, err = schemaVersion(ctx, tx, r.schemas); err != nil {
			return err
		}
		if r.kind == KindRollback {
			if err := r.checkOld(ctx, tx); err != nil {
				return err
			}
		}
		err = tx.QueryRow(ctx, r.sql(`INSERT INTO live.rebuilds (kind, consumer_group, kafka_topic, topic_id, status, dry_run, max_differences, schema_version, actor, comment)
			VALUES ($1, $2, $3, $4, 'filling', $5, $6, $7, $8, $9) RETURNING id`), r.kind, r.group, r.topic, r.id, r.cfg.DryRun,
			r.cfg.MaxDifferences, r.version, r.cfg.By.Actor, r.cfg.By.Comment).Scan(&r.report.ID)
		if err != nil {
			return fmt.Errorf("storing that the rebuild runs: %w", err)
		}
		r.report.Status = StatusFilling
		return nil
	})
}

// bounds asks for the topic's bounds, a few times while the cluster is in motion.
func (r *run) bounds(ctx context.Context) ([]projection.LogRange, error) {
	pause := firstPause
	for {
		ranges, err := r.cfg.Log.Ranges(ctx, r.topic)
		if err == nil {
			return ranges, nil
		}
		if pause > longestPause/2 || ctx.Err() != nil {
			return nil, fmt.Errorf("reading the topic's bounds: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (r *run) work(ctx context.Context) error {
	if err := r.chooseTargets(ctx); err != nil {
		return err
	}
	if r.kind == KindRebuild {
		if err := r.checkRemoved(ctx); err != nil {
			return err
		}
	}
	if err := r.makeShadow(ctx); err != nil {
		return err
	}
	pool, err := r.cfg.OpenShadow(ctx, quote(r.shadow)+", "+quote(r.live))
	if err != nil {
		return fmt.Errorf("opening a pool for the rebuilt tables: %w", err)
	}
	defer pool.Close()
	if err := r.open(ctx, pool); err != nil {
		return err
	}
	defer r.fill.close()
	stop := r.reportProgress(ctx)
	defer stop()
	if err := r.follow(ctx); err != nil {
		return err
	}
	r.report.Filling = time.Since(r.began).Seconds()
	r.report.Rate = float64(r.fill.passed.Load()) / r.report.Filling
	if err := r.compare(ctx); err != nil {
		return err
	}
	return r.exchangePatiently(ctx)
}

// open makes what fills the shadow: the ordinary projector, without a gate, breaker, or copies of letters.
func (r *run) open(ctx context.Context, pool *pgxpool.Pool) error {
	store := &shadowStore{Store: pgstore.New(pool), revision: r.report.ID * revisions}
	projector, err := projection.NewProjector(projection.ProjectorConfig{
		Group: r.group, Store: store, Older: r.cfg.Records, Logger: r.cfg.Logger.With("tables", r.shadow), Hint: r.cfg.Hint,
		Writers: r.cfg.Writers, BatchTimeout: r.cfg.BatchTimeout,
	})
	if err != nil {
		return err
	}
	r.refold, err = projection.NewOperator(projection.OperatorConfig{
		Group: r.group, Topic: r.topic, Store: store, Older: r.cfg.Records, Log: r.cfg.Log, Logger: r.cfg.Logger, Timeout: r.cfg.BatchTimeout,
	})
	if err != nil {
		return err
	}
	r.fill = &filler{cfg: &r.cfg, projector: projector, decoder: projection.EventDecoder{}}
	return r.fill.open(ctx, r.ranges)
}

// chooseTargets decides how far each partition is read: as far as the live tables are, so that the two can be
// compared; to its end where those hold nothing of it.
func (r *run) chooseTargets(ctx context.Context) error {
	var marks map[int32]int64
	err := transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) (err error) {
		marks, err = r.readMarks(ctx, tx, "live")
		return err
	})
	if err != nil {
		return err
	}
	now, err := r.bounds(ctx) // later than the watermarks
	if err != nil {
		return err
	}
	ends := map[int32]int64{}
	for _, p := range now {
		ends[p.Partition] = p.Until
	}
	for _, p := range r.ranges {
		mark, found := marks[p.Partition]
		beyond := !found || mark <= p.From
		if beyond {
			r.beyond = append(r.beyond, p.Partition)
		}
		if mark > ends[p.Partition] {
			return &projection.RefusedError{
				Reason: fmt.Sprintf("the watermark of %s is at offset %d, beyond the end of its log at %d", p.TopicPartition, mark, ends[p.Partition]),
				Advice: "the topic lost records: see the section on positions beyond the end of the log in docs/operations.md",
			}
		}
		r.report.Partitions = append(r.report.Partitions, Partition{Partition: p.Partition, LogStart: p.From, LogEnd: p.Until, Beyond: beyond})
	}
	return nil
}

// patiently tries again, for a while, what fails for a reason that passes.
func (r *run) patiently(ctx context.Context, attempt func() error) error {
	until, pause := time.Now().Add(regain), firstPause
	for {
		err := attempt()
		if err == nil || ctx.Err() != nil || time.Now().After(until) || !transient(err) {
			return err
		}
		r.cfg.Logger.Warn("the database does not answer, trying again", "error", err, "in", pause.String())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// readMarks reads the watermarks of a set.
func (r *run) readMarks(ctx context.Context, tx pgx.Tx, set string) (map[int32]int64, error) {
	rows, err := tx.Query(ctx, r.sql(`SELECT kafka_partition, next_offset FROM `+set+`.projection_watermarks
		WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3`), r.group, r.topic, r.id)
	if err != nil {
		return nil, fmt.Errorf("reading the watermarks: %w", err)
	}
	marks := map[int32]int64{}
	var partition int32
	var next int64
	if _, err := pgx.ForEachRow(rows, []any{&partition, &next}, func() error { marks[partition] = next; return nil }); err != nil {
		return nil, fmt.Errorf("reading the watermarks: %w", err)
	}
	return marks, nil
}

// targets are the offsets to read to, given the live watermarks.
func (r *run) targets(marks map[int32]int64) map[int32]int64 {
	targets := map[int32]int64{}
	for _, p := range r.ranges {
		targets[p.Partition] = marks[p.Partition]
		if slices.Contains(r.beyond, p.Partition) {
			targets[p.Partition] = max(marks[p.Partition], r.end[p.Partition])
		}
	}
	return targets
}

// checkRemoved refuses when orders were made from records that the log does not hold any more:
// the rebuilt tables would not have them.
func (r *run) checkRemoved(ctx context.Context) error {
	if !slices.ContainsFunc(r.ranges, func(p projection.LogRange) bool { return p.From > 0 }) {
		return nil
	}
	var orders, letters int64
	var first *string
	err := transact(ctx, r.cfg.DB, longTimeout, func(tx pgx.Tx) error {
		const starts = `unnest($1::integer[], $2::bigint[]) AS f (kafka_partition, start)`
		err := tx.QueryRow(ctx, r.sql(`SELECT count(*), min(order_id) FROM (
				SELECT order_id FROM live.order_rows o WHERE EXISTS (SELECT FROM unnest(o.ledger_partitions, o.ledger_offsets) AS e (kafka_partition, kafka_offset)
					JOIN `+starts+` USING (kafka_partition) WHERE e.kafka_offset < f.start)
				UNION SELECT order_id FROM live.order_ledger_archive JOIN `+starts+` USING (kafka_partition) WHERE kafka_offset < f.start
				UNION SELECT order_id FROM live.parked_events JOIN `+starts+` USING (kafka_partition)
					WHERE kafka_offset < f.start AND consumer_group = $3 AND kafka_topic = $4 AND topic_id = $5
			) AS o`), r.startPartitions, r.starts, r.group, r.topic, r.id).Scan(&orders, &first)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, r.sql(`SELECT count(*) FROM live.dead_letters JOIN `+starts+` USING (kafka_partition)
			WHERE kafka_offset < f.start AND consumer_group = $3 AND kafka_topic = $4 AND topic_id = $5 AND status IN ('open', 'exhausted') AND blocks`),
			r.startPartitions, r.starts, r.group, r.topic, r.id).Scan(&letters)
	})
	if err != nil {
		return fmt.Errorf("looking for orders whose records are gone: %w", err)
	}
	if orders == 0 && letters == 0 {
		return nil
	}
	reason := fmt.Sprintf("retention has removed records that %d orders and %d blocking dead letters were made from: rebuilt tables would lose them", orders, letters)
	if first != nil {
		reason += " (the first is order " + *first + ")"
	}
	return &projection.RefusedError{
		Reason: reason, Advice: "restore the records, or repair single orders, whose records are all there, with rebuild --orders",
	}
}

// makeShadow creates the tables to fill, or takes the old set.
func (r *run) makeShadow(ctx context.Context) error {
	return transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) error {
		if r.kind == KindRollback {
			return r.takeOld(ctx, tx)
		}
		if err := createSchema(ctx, tx, r.schemas, r.shadow); err != nil {
			return err
		}
		for _, table := range projected {
			if err := createLike(ctx, tx, r.schemas, r.shadow, table); err != nil {
				return err
			}
		}
		for _, statement := range []string{
			`CREATE TABLE shadow.decisions_seen AS SELECT id, undone_at IS NOT NULL AS undone FROM live.operator_decisions`,
			`CREATE TABLE shadow.letters_closed (letter_id bigint PRIMARY KEY)`,
			fmt.Sprintf(`CREATE TABLE shadow.rebuild_set AS SELECT %d::bigint AS rebuild_id, 'new'::text AS kind`, r.report.ID),
		} {
			if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
				return fmt.Errorf("creating the tables to fill: %w", err)
			}
		}
		return r.prepareShadow(ctx, tx)
	})
}

// prepareShadow sets what tells this shadow from everything else: sessions that would
// write into other tables than they believe meet another generation there, and rows remembered from other tables have other revisions.
func (r *run) prepareShadow(ctx context.Context, tx pgx.Tx) error {
	if err := createView(ctx, tx, r.schemas); err != nil {
		return err
	}
	for _, statement := range []string{
		fmt.Sprintf(`ALTER TABLE shadow.order_rows ALTER COLUMN revision SET DEFAULT %d`, r.report.ID*revisions),
		fmt.Sprintf(`ALTER TABLE shadow.projection_watermarks ALTER COLUMN generation SET DEFAULT %d`, -r.report.ID),
		fmt.Sprintf(`UPDATE shadow.projection_watermarks SET generation = %d`, -r.report.ID),
		`DROP TABLE IF EXISTS shadow.differences`,
		`CREATE TABLE shadow.differences (order_id text COLLATE "C" PRIMARY KEY, cause text NOT NULL, detail text, expected boolean NOT NULL)`,
	} {
		if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
			return fmt.Errorf("preparing the tables to fill: %w", err)
		}
	}
	return nil
}

// follow reads until the shadow is close to the live tables.
func (r *run) follow(ctx context.Context) error {
	for {
		var marks, rebuilt map[int32]int64
		err := r.patiently(ctx, func() error {
			return transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) (err error) {
				if rebuilt, err = r.readMarks(ctx, tx, "shadow"); err == nil {
					marks, err = r.readMarks(ctx, tx, "live")
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		if err := r.fill.rewind(ctx, rebuilt); err != nil {
			return err
		}
		targets := r.targets(marks)
		left := r.fill.left(targets)
		r.goal.Store(r.fill.passed.Load() + left)
		if err := r.fill.to(ctx, targets); err != nil {
			return err
		}
		if left <= closeEnough {
			return nil
		}
	}
}

// compare compares everything, on one moment of the database and without locks. What the members
// do meanwhile is looked at again later.
func (r *run) compare(ctx context.Context) error {
	r.phase.Store(Comparing)
	if err := r.store(ctx, StatusComparing); err != nil {
		return err
	}
	began := time.Now()
	step := func(what string) {
		r.cfg.Logger.Debug(what, "took", time.Since(began).String())
		began = time.Now()
	}
	// Readers of the exchanged tables need statistics at once; those of arrays, which take longest, can wait for a vacuum.
	for _, table := range []string{
		quote(r.shadow, "order_rows") + ` (order_id, version, customer_id, state, created_at, updated_at, projected_at, projection_status, waiting_for_version)`,
		quote(r.shadow, "order_ledger_archive"), quote(r.shadow, "parked_events"),
	} {
		if err := r.patiently(ctx, func() error {
			return transact(ctx, r.cfg.DB, longTimeout, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `ANALYZE `+table)
				return err
			})
		}); err != nil {
			return fmt.Errorf("analysing the rebuilt tables: %w", err)
		}
	}
	step("analysed")
	for round := 1; ; round++ {
		if err := r.follow(ctx); err != nil {
			return err
		}
		if err := r.patiently(ctx, func() error {
			_, err := r.fill.projector.SweepAll(ctx)
			return err
		}); err != nil {
			return fmt.Errorf("releasing parked events: %w", err)
		}
		step("caught up")
		r.fill.remember()
		err := r.patiently(ctx, func() error {
			return transactAs(ctx, r.cfg.DB, pgx.RepeatableRead, longTimeout, func(tx pgx.Tx) error {
				if err := r.everything(ctx, tx); err != nil {
					return err
				}
				if err := tx.QueryRow(ctx, r.sql(`SELECT count(*) FROM shadow.order_rows WHERE version > 0`)).Scan(&r.report.Orders); err != nil {
					return fmt.Errorf("counting the rebuilt orders: %w", err)
				}
				return r.count(ctx, tx, r.report, r.cfg.MaxListed)
			})
		})
		if err != nil {
			return err
		}
		step("compared")
		if err := r.follow(ctx); err != nil {
			return err
		}
		if _, whole := r.fill.remembered(); whole || round == compareRounds {
			return nil
		}
	}
}

// exchangePatiently tries to exchange the tables until it works out.
func (r *run) exchangePatiently(ctx context.Context) error {
	r.phase.Store(Exchanging)
	until, pause, freeze := time.Now().Add(r.cfg.Patience), firstPause, firstFreeze
	looked := false
	for {
		r.report.Attempts++
		err := r.attempt(ctx, freeze)
		if err != nil && passes(err) {
			if who := r.holders(ctx); who != "" {
				err = fmt.Errorf("%w: %s", err, who)
			}
		}
		var differs *DifferenceError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &differs) && !looked:
			// A member may be about to put it right: what it has just been told, or what waits for its sweep.
			looked, pause = true, settle
		case passes(err) && time.Now().Before(until):
			r.cfg.Logger.Info("the tables could not be exchanged yet, trying again", "attempt", r.report.Attempts, "reason", err, "in", pause.String())
		case passes(err):
			return &GaveUpError{After: r.cfg.Patience, Err: err}
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause, freeze = min(max(firstPause, 2*pause), longestPause), min(2*freeze, longFreeze)
		if err := r.follow(ctx); err != nil {
			return err
		}
		if _, whole := r.fill.remembered(); !whole { // too much was read since to look at it while the members wait
			if err := r.compare(ctx); err != nil {
				return err
			}
			r.phase.Store(Exchanging)
		}
	}
}

// attempt makes the members wait, brings the shadow up to exactly where they are, looks once more at what
// may differ, and exchanges the tables.
func (r *run) attempt(ctx context.Context, freeze time.Duration) error {
	var locked, readers time.Time
	err := transact(ctx, r.cfg.DB, 2*longFreeze, func(tx pgx.Tx) error {
		locked = time.Now()
		if err := lockLive(ctx, tx, r.schemas); err != nil {
			return err
		}
		frozen, cancel := context.WithTimeout(ctx, freeze)
		defer cancel()
		if err := r.catchUp(frozen, tx); err != nil {
			if ctx.Err() == nil && frozen.Err() != nil {
				return fmt.Errorf("%w (%s): %w", errFreezeTooLong, freeze, err)
			}
			return err
		}
		if err := r.count(ctx, tx, r.report, r.cfg.MaxListed); err != nil {
			return err
		}
		switch {
		case r.cfg.MaxDifferences >= 0 && r.report.Differing() > r.cfg.MaxDifferences:
			return &DifferenceError{r.report.DifferingOrders, r.report.DifferingLetters, r.cfg.MaxDifferences}
		case r.cfg.DryRun:
			return errDryRun
		}
		var err error
		readers, err = r.exchange(ctx, tx)
		return err
	})
	if !locked.IsZero() {
		r.report.WritersWaited = max(r.report.WritersWaited, time.Since(locked).Seconds())
	}
	if !readers.IsZero() {
		r.report.ReadersWaited = max(r.report.ReadersWaited, time.Since(readers).Seconds())
	}
	switch {
	case err == nil:
		r.report.Status = StatusSwapped
	case errors.Is(err, errDryRun):
		return nil
	case !readers.IsZero() && (!passes(err) || transient(err)) && r.swapped(ctx):
		r.report.Status = StatusSwapped // the connection broke during the commit, which was done
		return nil
	}
	return err
}

// swapped asks whether the exchange was committed.
func (r *run) swapped(ctx context.Context) (yes bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	err := r.patiently(ctx, func() error {
		return r.cfg.DB.QueryRow(ctx, r.sql(`SELECT status = 'swapped' FROM live.rebuilds WHERE id = $1`), r.report.ID).Scan(&yes)
	})
	return err == nil && yes
}

// catchUp brings the shadow up to the members, who wait, and compares again.
func (r *run) catchUp(ctx context.Context, tx pgx.Tx) error {
	rebuilt, err := r.readMarks(ctx, tx, "shadow")
	if err != nil {
		return err
	}
	if err := r.fill.rewind(ctx, rebuilt); err != nil {
		return err
	}
	marks, err := r.readMarks(ctx, tx, "live")
	if err != nil {
		return err
	}
	targets := r.targets(marks)
	if r.fill.left(targets) > tooFar {
		return errTooFarBehind
	}
	if err := r.fill.to(ctx, targets); err != nil {
		return err
	}
	decided, err := r.refoldDecided(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := r.fill.projector.SweepAll(ctx); err != nil {
		return fmt.Errorf("releasing parked events: %w", err)
	}
	orders, whole := r.fill.remembered()
	if !whole {
		return errTooFarBehind
	}
	return r.again(ctx, tx, append(orders, decided...))
}

// refoldDecided folds the orders anew about which operators decided something, or took it back, since the shadow
// began: it may have folded them before.
func (r *run) refoldDecided(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, r.sql(`SELECT d.order_id, array_agg(d.kafka_partition), array_agg(d.kafka_offset)
		FROM live.operator_decisions d LEFT JOIN shadow.decisions_seen s ON s.id = d.id
		WHERE s.id IS NULL OR s.undone <> (d.undone_at IS NOT NULL)
		GROUP BY d.order_id`))
	if err != nil {
		return nil, fmt.Errorf("reading operators' decisions: %w", err)
	}
	offsets := map[string]map[int32][]int64{}
	add := func(order string, partitions []*int32, at []*int64) {
		if offsets[order] == nil {
			offsets[order] = map[int32][]int64{}
		}
		for i := range partitions {
			if partitions[i] != nil && at[i] != nil && *partitions[i] >= 0 && *at[i] >= 0 {
				offsets[order][*partitions[i]] = append(offsets[order][*partitions[i]], *at[i])
			}
		}
	}
	var order string
	var partitions []*int32
	var at []*int64
	if _, err := pgx.ForEachRow(rows, []any{&order, &partitions, &at}, func() error { add(order, partitions, at); return nil }); err != nil {
		return nil, fmt.Errorf("reading operators' decisions: %w", err)
	}
	orders := slices.Sorted(maps.Keys(offsets))
	if len(orders) == 0 {
		return nil, nil
	}
	// Whatever either set knows of an order says where its records are.
	rows, err = tx.Query(ctx, r.sql(`SELECT order_id, array_agg(kafka_partition), array_agg(kafka_offset) FROM (
			SELECT o.order_id, e.kafka_partition, e.kafka_offset
			FROM (SELECT * FROM live.order_rows UNION ALL SELECT * FROM shadow.order_rows) AS o
			CROSS JOIN LATERAL unnest(o.ledger_partitions, o.ledger_offsets) AS e (kafka_partition, kafka_offset) WHERE o.order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.order_ledger_archive WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.order_ledger_archive WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.parked_events WHERE order_id = ANY ($1::text[]) AND topic_id = $2
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.parked_events WHERE order_id = ANY ($1::text[])
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM live.dead_letters WHERE order_id = ANY ($1::text[]) AND topic_id = $2
			UNION ALL SELECT order_id, kafka_partition, kafka_offset FROM shadow.dead_letters WHERE order_id = ANY ($1::text[])
		) AS e GROUP BY order_id`), orders, r.id)
	if err != nil {
		return nil, fmt.Errorf("looking for the records of decided orders: %w", err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&order, &partitions, &at}, func() error { add(order, partitions, at); return nil }); err != nil {
		return nil, fmt.Errorf("looking for the records of decided orders: %w", err)
	}
	log := projection.TopicPartition{Topic: r.topic, TopicID: projection.TopicID(r.id)}
	for _, order := range orders {
		if err := r.refold.Refold(ctx, order, log, offsets[order]); err != nil {
			return nil, err
		}
	}
	return orders, nil
}

// conclusion stores, in the exchange's transaction, that it was made.
func (r *run) conclusion(ctx context.Context, tx pgx.Tx) error {
	action, target := "rebuild.swap", "topic "+r.topic
	if r.kind == KindRollback {
		action = "rebuild.rollback"
		if _, err := tx.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = 'rolled_back', updated_at = clock_timestamp()
			WHERE id = (SELECT rebuild_id FROM shadow.rebuild_set) AND status = 'swapped'`)); err != nil {
			return fmt.Errorf("storing that the rebuild was rolled back: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = 'swapped', finished_at = clock_timestamp(), updated_at = clock_timestamp(),
			records = $2, total = $2, differing_orders = $3, differing_letters = $4, generation = $5 WHERE id = $1`),
		r.report.ID, r.fill.passed.Load(), r.report.DifferingOrders, r.report.DifferingLetters, r.report.Generation); err != nil {
		return fmt.Errorf("storing that the tables were exchanged: %w", err)
	}
	_, err := tx.Exec(ctx, r.sql(`INSERT INTO live.audit_log (actor, action, target, comment, after)
		VALUES ($1, $2, $3, $4, jsonb_build_object('rebuild', $5::bigint, 'group', $6::text, 'generation', $7::bigint, 'differing_orders', $8::bigint, 'differing_letters', $9::bigint))`),
		r.cfg.By.Actor, action, target, r.cfg.By.Comment, r.report.ID, r.group, r.report.Generation, r.report.DifferingOrders, r.report.DifferingLetters)
	if err != nil {
		return fmt.Errorf("auditing the exchange: %w", err)
	}
	return nil
}

// store stores how far the rebuild is.
func (r *run) store(ctx context.Context, status Status) error {
	r.report.Status = status
	err := r.patiently(ctx, func() error {
		_, err := r.cfg.DB.Exec(ctx, r.sql(`UPDATE live.rebuilds SET status = $2, updated_at = clock_timestamp() WHERE id = $1 AND finished_at IS NULL`), r.report.ID, status)
		return err
	})
	if err != nil {
		return fmt.Errorf("storing the state of the rebuild: %w", err)
	}
	return nil
}

// reportProgress tells now and then how far it is, until it is stopped.
func (r *run) reportProgress(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			passed, total := r.fill.passed.Load(), r.goal.Load()
			r.cfg.Progress(Progress{Phase: r.phase.Load().(Phase), Done: passed, Total: max(passed, total), Elapsed: time.Since(r.began)})
			if time.Since(r.saved) < saveInterval {
				continue
			}
			r.saved = time.Now()
			saving, cancel := context.WithTimeout(ctx, shortTimeout)
			_, err := r.cfg.DB.Exec(saving, r.sql(`UPDATE live.rebuilds SET records = $2, total = $3, updated_at = clock_timestamp()
				WHERE id = $1 AND finished_at IS NULL`), r.report.ID, passed, max(passed, total))
			cancel()
			if err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("how far the rebuild is could not be stored", "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// conclude removes what is not needed any more, and stores how it ended.
func (r *run) conclude(ctx context.Context, err error) error {
	r.report.Seconds = time.Since(r.began).Seconds()
	if r.fill != nil {
		r.report.Records = r.fill.passed.Load()
		for i := range r.report.Partitions {
			if p := r.fill.partitions[r.report.Partitions[i].Partition]; p != nil {
				r.report.Partitions[i].Next = p.next
			}
		}
	}
	if r.report.Status == StatusSwapped {
		return err
	}
	var differs *DifferenceError
	var aborted *AbortedError
	switch {
	case err == nil:
		r.report.Status = StatusCompared
	case errors.As(err, &differs):
		r.report.Status = StatusDiffers
	case errors.As(err, &aborted), ctx.Err() != nil:
		r.report.Status = StatusAborted
	default:
		r.report.Status = StatusFailed
	}
	if errors.Is(err, errLeaseLost) {
		return fmt.Errorf("%w (the live tables are as they were; the next rebuild, or rebuild abort, removes what is left of this one)", err)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if failed := finish(clean, r.cfg.DB, r.schemas, r.report, err); failed != nil {
		r.cfg.Logger.Warn("what is left of the rebuild could not be removed; the next one, or rebuild abort, will", "error", failed)
	}
	return err
}

// finish removes the shadow, or gives the old set back, and stores the end of a rebuild.
func finish(ctx context.Context, db *pgxpool.Pool, s schemas, report *Report, failure error) error {
	return transact(ctx, db, cleanUpTimeout, func(tx pgx.Tx) error {
		if err := removeShadow(ctx, tx, s); err != nil {
			return err
		}
		var text *string
		if failure != nil {
			message := failure.Error()
			text = &message
		}
		var orders, letters *int64
		if report.Attempts > 0 {
			orders, letters = &report.DifferingOrders, &report.DifferingLetters
		}
		_, err := tx.Exec(ctx, s.sql(`UPDATE live.rebuilds SET status = $2, failure = $3, finished_at = clock_timestamp(), updated_at = clock_timestamp(),
				records = $4, differing_orders = $5, differing_letters = $6
			WHERE id = $1 AND finished_at IS NULL`), report.ID, report.Status, text, report.Records, orders, letters)
		return err
	})
}

// removeShadow drops the shadow. An old set that was being caught up goes back to its place instead.
func removeShadow(ctx context.Context, tx pgx.Tx, s schemas) error {
	there, err := exists(ctx, tx, s.shadow, "rebuild_set")
	if err != nil {
		return err
	}
	if there {
		var kind string
		if err := tx.QueryRow(ctx, s.sql(`SELECT kind FROM shadow.rebuild_set`)).Scan(&kind); err != nil {
			return fmt.Errorf("reading what is left in schema %s: %w", s.shadow, err)
		}
		if kind == "old" {
			if err := createSchema(ctx, tx, s, s.old); err != nil {
				return err
			}
			if err := moveSet(ctx, tx, s.shadow, s.old); err != nil {
				return err
			}
		}
	}
	return dropSet(ctx, tx, s.shadow)
}

// cleanUp removes what rebuilds that died have left. The lock must be held.
func cleanUp(ctx context.Context, db *pgxpool.Pool, s schemas, log *slog.Logger) error {
	var died int64
	err := transact(ctx, db, cleanUpTimeout, func(tx pgx.Tx) error {
		if err := removeShadow(ctx, tx, s); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.sql(`UPDATE live.rebuilds SET status = CASE WHEN abort_actor IS NULL THEN 'failed' ELSE 'aborted' END,
				failure = 'the process ended without a word', finished_at = clock_timestamp(), updated_at = clock_timestamp()
			WHERE finished_at IS NULL`))
		died = tag.RowsAffected()
		return err
	})
	if err != nil {
		return fmt.Errorf("removing what an earlier rebuild left: %w", err)
	}
	if died > 0 {
		log.Info("removed what a rebuild left that ended without a word")
	}
	return nil
}
