package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/httpapi"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/outbox"
	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
	"github.com/orderprojector/orderprojector/outbox/relay"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// The roles of the relay's connections. Neither needs more of the schema than the outbox.
const (
	OutboxPool   PoolRole = "outbox" // questions, and operators' actions
	relaySession PoolRole = "relay"  // holds the right to publish
)

// Relay is the program that publishes an outbox, with its HTTP listener. Make one with NewRelay and
// Run it once.
type Relay struct {
	*lifecycle
	cfg      config.Config
	registry *prometheus.Registry

	pool      *pgxpool.Pool
	relay     *relay.Relay
	stats     *polled
	closeOnce sync.Once
}

// NewRelay builds the relay and opens its HTTP listener. It connects neither to Kafka nor
// to the database: Run waits for both. Close it if it is not run.
func NewRelay(ctx context.Context, cfg config.Config, logger *slog.Logger) (_ *Relay, err error) {
	if cfg.HTTP.Address == config.DefaultHTTPAddress && !cfg.Explicit("http-address") {
		cfg.HTTP.Address = config.DefaultRelayHTTPAddress
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Relay{cfg: cfg, lifecycle: newLifecycle(logger, cfg.ShutdownGrace), registry: newRegistry(ReadBuild())}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.pool, err = OpenPool(ctx, cfg.Database, OutboxPool, readConns); err != nil {
		return nil, err
	}
	if err := a.build(); err != nil {
		return nil, err
	}
	if a.listener, err = listen(cfg, logger); err != nil {
		return nil, err
	}
	a.server = httpapi.New(httpapi.Config{Logger: logger, Gatherer: a.registry, Ready: a.readiness(), Consumption: a.progress})
	return a, nil
}

func (a *Relay) build() error {
	db := a.cfg.Database
	if !a.cfg.Explicit("database-statement-timeout") {
		// Its statements are short, and one that is not answered keeps everything waiting.
		db.StatementTimeout = min(db.StatementTimeout, relayStatement)
	}
	session, err := sessionConfig(db, relaySession)
	if err != nil {
		return err
	}
	if pgstore.SharesSessions(session) {
		return &config.Error{
			Name: "database-url", Value: a.cfg.Database.URL.String(), Origin: a.cfg.Origin("database-url"),
			Problem: "asks for sessions that are shared, and the relay needs one of its own", Advice: "connect the relay to PostgreSQL itself, without default_query_exec_mode",
		}
	}
	client := KafkaClient(a.cfg.Kafka)
	if err := client.Validate(); err != nil {
		return err
	}
	a.relay, err = relay.New(relay.Config{
		Open:       outboxstore.OpenQueue(session, db.StatementTimeout+batchMargin),
		OpenTopic:  func() (relay.Topic, error) { return kafkaio.NewOutboxTopic(client, a.cfg.Kafka.Topic, a.logger) },
		Encoder:    relay.Encoder{Format: relay.Format(a.cfg.Outbox.Format), Source: a.cfg.Outbox.Source},
		Logger:     a.logger,
		Registerer: a.registry,
		Hint:       Hint,

		PollInterval: a.cfg.Outbox.PollInterval,
		StopGrace:    min(a.cfg.ShutdownGrace, relayStopGrace),
		StallLimit:   a.cfg.StallLimit,
	})
	if err != nil {
		return err
	}
	a.stats = newOutboxStats(outboxstore.New(a.pool).Status, a.logger)
	return a.registry.Register(a.stats)
}

const (
	// relayStopGrace is more than a record that is in flight can take.
	relayStopGrace = 6 * time.Second
	relayStatement = 5 * time.Second
)

// Run serves, waits for the database, and publishes until ctx ends; what is in flight then finishes within the
// grace time. It returns nil after a clean stop, and an error for what waiting cannot
// heal, such as a database without an outbox.
func (a *Relay) Run(ctx context.Context) error {
	defer a.Close()
	return a.run(ctx, a.work)
}

func (a *Relay) work(ctx context.Context) error {
	if err := a.awaitDatabase(ctx, a.checkSchema, isOutboxMissing); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while waiting
		}
		return err
	}
	a.phase.CompareAndSwap(phaseWaiting, "")
	var background sync.WaitGroup
	beside, stop := context.WithCancel(ctx)
	background.Go(func() { a.stats.run(beside) })
	a.relay.Run(ctx)
	stop()
	background.Wait()
	return nil
}

// isOutboxMissing says of an error of checkSchema that waiting does not heal it.
func isOutboxMissing(err error) bool {
	var missing *OutboxMissingError
	return errors.As(err, &missing)
}

func (a *Relay) checkSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*a.cfg.Database.ConnectTimeout+a.cfg.Database.LockTimeout)
	defer cancel()
	return CheckOutbox(ctx, a.pool)
}

// OutboxMissingError says that a database has no outbox.
type OutboxMissingError struct{}

func (*OutboxMissingError) Error() string { return "the database has no outbox" }

// Hint says how to make one.
func (*OutboxMissingError) Hint() string {
	return "run: orderprojector migrate up; in an order service's own database the service makes it (outbox.EnsureSchema)"
}

// CheckOutbox returns an *OutboxMissingError when the database has no outbox.
func CheckOutbox(ctx context.Context, db outbox.Database) error {
	there, err := outbox.SchemaExists(ctx, db)
	if err == nil && !there {
		return &OutboxMissingError{}
	}
	return err
}

func (a *Relay) readiness() []httpapi.Check {
	return []httpapi.Check{
		{Name: "database", Run: a.pool.Ping},
		{Name: "schema", Run: func(ctx context.Context) error { return CheckOutbox(ctx, a.pool) }},
		{Name: "lifecycle", Run: a.alive},
	}
}

// progress says why nothing is published, or what holds messages up.
func (a *Relay) progress() error {
	if err := a.idle(); err != nil {
		return err
	}
	return a.relay.Healthy()
}

// Close releases what NewRelay opened. Run calls it; it can be called again.
func (a *Relay) Close() {
	a.closeOnce.Do(func() {
		a.close()
		closePools(a.within(poolCloseGrace), a.pool)
	})
}

// Registry holds every metric of the relay.
func (a *Relay) Registry() *prometheus.Registry { return a.registry }
