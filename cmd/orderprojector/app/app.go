// Package app wires the program together, by hand and in one place, and owns
// the order in which its parts start and stop.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/httpapi"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	readConns = 4 // health, metrics and questions
	// The projector takes no more than its writers' number of connections at a
	// time. The pool lets more exist, because one that fell silent counts for 15 s
	// after it is given up, and meanwhile others have to take the place of those.
	closingShare   = 3
	httpGrace      = 2 * time.Second // for requests in flight when the program stops
	poolCloseGrace = 2 * time.Second
	// A batch gets a little longer than a statement: the server ends what takes
	// too long, the client what hangs because the server cannot be heard.
	batchMargin     = time.Second
	firstRetryPause = 250 * time.Millisecond
	lastRetryPause  = 3 * time.Second
)

// App is the whole program: a member of the consumer group that projects into
// PostgreSQL, with its HTTP listener. Make one with New and Run it once.
type App struct {
	*lifecycle
	cfg      config.Config
	schema   int64
	registry *prometheus.Registry
	// clientMetrics are those of the Kafka client library, with names of its choice.
	clientMetrics *prometheus.Registry

	writePool, readPool *pgxpool.Pool
	reader              *pgstore.Reader
	records             *kafkaio.RecordReader
	control             *projection.Control
	projector           *projection.Projector // nil in a consumer beside it
	member              member
	consumer            *kafkaio.Consumer
	copies              *letterCopies // nil when switched off
	stats               *databaseStats
	snapshots           *polled
	waits               *databaseWaits
	membership          *membership
	letters             *letterLog

	closeOnce sync.Once
}

// member is what the program does with the records of its group's partitions.
type member struct {
	handler  projection.Handler
	troubles func() []*projection.Trouble
	beside   []func(context.Context) // what runs next to the consumer, until its context ends
	trouble  func() error            // what else keeps the member from its work; nil for nothing
}

// New builds the program and opens its HTTP listener, so that a wrong
// configuration or a taken address shows at once. It connects neither to Kafka nor to
// the database: Run waits for both. Close it if it is not run.
func New(ctx context.Context, cfg config.Config, logger *slog.Logger) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newApp(ctx, cfg, logger, (*App).projecting)
}

// newApp builds a program around a member of cfg's group. The configuration is valid.
func newApp(ctx context.Context, cfg config.Config, logger *slog.Logger, build func(*App, *pgstore.Store) (member, error)) (_ *App, err error) {
	a := &App{cfg: cfg, lifecycle: newLifecycle(logger, cfg.ShutdownGrace)}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.schema, err = SchemaVersion(); err != nil {
		return nil, err
	}
	a.registry, a.clientMetrics = newRegistry(ReadBuild()), prometheus.NewRegistry()
	if err := a.openDatabase(ctx); err != nil {
		return nil, err
	}
	if err := a.buildPipeline(build); err != nil {
		return nil, err
	}
	if a.listener, err = listen(cfg, logger); err != nil {
		return nil, err
	}
	a.server = httpapi.New(httpapi.Config{
		Logger: logger, Gatherer: prometheus.Gatherers{a.registry, a.clientMetrics}, Ready: a.readiness(), Consumption: a.consumption,
	})
	return a, nil
}

func (a *App) openDatabase(ctx context.Context) (err error) {
	if a.writePool, err = OpenPool(ctx, a.cfg.Database, WritePool, closingShare*a.cfg.Database.Writers); err != nil {
		return err
	}
	if a.readPool, err = OpenPool(ctx, a.cfg.Database, ReadPool, readConns); err != nil {
		return err
	}
	a.reader = pgstore.NewReader(a.readPool)
	a.stats = newDatabaseStats(func(ctx context.Context) (pgstore.Stats, error) {
		return a.reader.Stats(ctx, a.cfg.Kafka.Group)
	}, a.logger)
	a.stats.copies = a.cfg.Kafka.DeadLetters() != ""
	a.snapshots = newSnapshotStats(a.reader.SnapshotHolders, a.logger)
	a.waits = &databaseWaits{
		read: a.reader.Waits, slow: a.slow, application: a.writePool.Config().ConnConfig.RuntimeParams["application_name"], logger: a.logger,
	}
	return errors.Join(a.registry.Register(a.stats), a.registry.Register(a.snapshots))
}

// slow reports whether a partition has made no progress for longer than a batch should take.
func (a *App) slow() bool {
	return len(a.member.troubles()) > 0 || slices.ContainsFunc(a.consumer.Status().Partitions, func(p kafkaio.PartitionStatus) bool {
		return (p.Lag > 0 || !p.Assigned) && time.Since(p.LastProgress) > slowBatch
	})
}

func (a *App) buildPipeline(build func(*App, *pgstore.Store) (member, error)) (err error) {
	client := KafkaClient(a.cfg.Kafka)
	client.ClientMetrics = a.clientMetrics
	if a.records, err = kafkaio.NewRecordReader(client, a.logger); err != nil {
		return err
	}
	a.records.TopicIDs = a.reader.TopicIDs
	store := pgstore.New(a.writePool)
	a.letters = &letterLog{group: a.cfg.Kafka.Group, digest: projection.NewLetterDigest(), find: a.reader.LetterID, logger: a.logger}
	store.OnLetters(a.letters.digest.Add)
	a.control, err = projection.NewControl(projection.ControlConfig{
		Group: a.cfg.Kafka.Group, Store: store, Logger: a.logger, Registerer: a.registry,
		Breaker: projection.BreakerPolicy{Disabled: !a.cfg.Projection.Breaker},
	})
	if err != nil {
		return err
	}
	if a.member, err = build(a, store); err != nil {
		return err
	}
	a.consumer, err = kafkaio.NewConsumer(client, consumerConfig(a.cfg, a.control), a.member.handler, a.logger, a.registry)
	if err != nil {
		return err
	}
	if a.membership, err = newMembership(a.cfg, a.schema, store, a.owned, a.logger); err != nil {
		return err
	}
	if err := a.registry.Register(a.membership); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	a.copies, err = newLetterCopies(a.cfg, a.logger, a.registry)
	return err
}

// progress makes the lines that tell how much is consumed.
func (a *App) progress() *progressLine {
	return &progressLine{
		status: a.consumer.Status, records: func() int64 { return consumedRecords(a.registry) }, letters: a.letters.digest.Total, logger: a.logger,
	}
}

// owned lists the partitions that this member reads.
func (a *App) owned() []int32 {
	partitions := []int32{}
	for _, p := range a.consumer.Status().Partitions {
		partitions = append(partitions, p.Partition)
	}
	return partitions
}

// projecting builds the member that projects.
func (a *App) projecting(store *pgstore.Store) (_ member, err error) {
	a.projector, err = projection.NewProjector(projection.ProjectorConfig{
		Group:      a.cfg.Kafka.Group,
		Store:      store,
		Control:    a.control,
		Older:      a.records,
		Logger:     a.logger,
		Registerer: a.registry,
		Hint:       Hint,
		Writers:    a.cfg.Database.Writers,
		CacheBytes: int64(a.cfg.Projection.CacheBytes),

		BatchTimeout: a.cfg.Database.StatementTimeout + batchMargin,
	})
	if err != nil {
		return member{}, err
	}
	return member{
		handler: a.projector, troubles: a.projector.Troubles,
		beside: []func(context.Context){a.projector.Sweep, a.projector.RetryHeld},
	}, nil
}

// Run serves, waits for the database, and consumes until ctx ends; then it
// stops in order: batches in flight finish within the grace time, what is durable is
// committed and the group is left; then HTTP; then the pools. It returns nil
// after a clean stop, and an error for what waiting cannot heal, such as a schema
// of another version.
func (a *App) Run(ctx context.Context) error {
	defer a.Close()
	return a.run(ctx, a.work)
}

// work runs everything that needs the database, and ends when all of it has.
func (a *App) work(ctx context.Context) error {
	if err := a.awaitDatabase(ctx, a.checkSchema, isSchemaMismatch); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while waiting
		}
		return err
	}
	a.storeDeadlines(ctx)
	a.phase.CompareAndSwap(phaseWaiting, "")
	beside, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { a.stats.run(beside) })
	background.Go(func() { a.letters.run(beside) })
	background.Go(func() { a.progress().run(beside) })
	background.Go(func() { a.snapshots.run(beside) })
	background.Go(func() { a.waits.run(beside) })
	background.Go(func() { a.control.Run(beside) })
	background.Go(func() {
		a.membership.run(beside)
		a.membership.leave(ctx, a.within(leaveLimit))
	})
	for _, run := range a.member.beside {
		background.Go(func() { run(beside) })
	}
	if a.copies != nil {
		background.Go(func() { a.copies.run(beside) })
	}
	err := a.consumer.Run(ctx)
	stop()
	background.Wait()
	a.letters.write(ctx, true)
	if err != nil {
		return fmt.Errorf("consuming %s: %w", a.cfg.Kafka.Topic, err)
	}
	return nil
}

// isSchemaMismatch says of an error of checkSchema that waiting does not heal it: a schema of another version. A process
// that waits for everything else heals with its database, and needs no restart loop.
func isSchemaMismatch(err error) bool {
	var mismatch *pgstore.SchemaError
	return errors.As(err, &mismatch)
}

// checkSchema asks the database, within a deadline, whether it fits the program.
func (a *App) checkSchema(ctx context.Context) error {
	// Long enough for the attempt's own error, which says more: a connection may be tried with and without TLS.
	ctx, cancel := context.WithTimeout(ctx, 2*a.cfg.Database.ConnectTimeout+a.cfg.Database.LockTimeout)
	defer cancel()
	return a.reader.CheckSchema(ctx, a.schema, a.cfg.Database.AllowNewerSchema)
}

// readiness lists what must hold for reads to be served.
func (a *App) readiness() []httpapi.Check {
	return []httpapi.Check{
		{Name: "database", Run: a.readPool.Ping},
		{Name: "schema", Run: func(ctx context.Context) error {
			return a.reader.CheckSchema(ctx, a.schema, a.cfg.Database.AllowNewerSchema)
		}},
		{Name: "lifecycle", Run: a.alive},
	}
}

// consumption says why nothing is consumed, or what holds the consumer up.
func (a *App) consumption() error {
	if err := a.idle(); err != nil {
		return err
	}
	err := a.consumer.Healthy()
	stalled := err != nil
	err = errors.Join(err, a.waits.trouble(stalled))
	if orphaned := a.membership.trouble(); orphaned != nil {
		err = errors.Join(err, fmt.Errorf("%w (%s)", orphaned, Hint(orphaned)))
	}
	if a.member.trouble != nil {
		err = errors.Join(err, a.member.trouble())
	}
	for _, t := range a.member.troubles() {
		// What heals by itself is worth a word once it takes too long.
		if stalled || t.Class.NeedsOperator() {
			err = errors.Join(err, t)
		}
	}
	return err
}

// Close releases what New opened. Run calls it; it can be called again.
func (a *App) Close() {
	a.closeOnce.Do(func() {
		a.close()
		if a.records != nil {
			a.records.Close()
		}
		closePools(a.within(poolCloseGrace), a.writePool, a.readPool)
	})
}

// closePools does not wait for ever for a connection that hangs in a dead network.
func closePools(limit time.Duration, pools ...*pgxpool.Pool) {
	var closing sync.WaitGroup
	for _, pool := range pools {
		if pool != nil {
			closing.Go(pool.Close)
		}
	}
	closed := make(chan struct{})
	go func() { closing.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(limit):
	}
}

// Registry holds every metric of the program.
func (a *App) Registry() *prometheus.Registry { return a.registry }

// Consumer is the group member, for its status.
func (a *App) Consumer() *kafkaio.Consumer { return a.consumer }

// Projector is what the consumer hands records to, nil where that is a consumer beside it.
func (a *App) Projector() *projection.Projector { return a.projector }
