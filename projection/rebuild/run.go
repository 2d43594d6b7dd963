package rebuild

import (
	"context"
	"errors"
	"fmt"
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
	firstFreeze  = 4 * time.Second  // how long the members may be made to wait by the first attempt, and
	longFreeze   = 20 * time.Second // by any
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
		Writers: r.cfg.Writers, BatchTimeout: r.cfg.BatchTimeout, NeverHold: true,
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
