package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/kafkaio"
)

const topic = "orders.events"

// services are the parts of a demonstration, each ready to work.
type services struct {
	kafka     *embedded.Kafka
	postgres  *embedded.Postgres
	settings  config.Config
	pool      *pgxpool.Pool // for questions
	reader    *kafkaio.TopicReader
	publisher *publish.Publisher
	projector *projector
}

// startServices starts everything, or nothing.
func startServices(ctx context.Context, c Config) (s *services, err error) {
	s = &services{}
	defer func() {
		if err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			err = errors.Join(err, s.stop(stopCtx))
			s = nil
		}
	}()
	if s.kafka, err = embedded.StartKafka(embedded.KafkaConfig{
		Logger: c.Logger, Topics: map[string]int32{topic + "-dlt": int32(c.Partitions)},
	}); err != nil {
		return s, err
	}
	s.postgres, err = embedded.StartPostgres(ctx, embedded.PostgresConfig{
		Binaries: c.Postgres, Logger: c.Logger,
		Settings: map[string]string{"fsync": "off", "full_page_writes": "off"}, // it is thrown away
	})
	if err != nil {
		return s, err
	}

	s.settings = config.Default()
	s.settings.Kafka.BootstrapServers = s.kafka.Brokers()
	s.settings.Kafka.Topic = topic
	s.settings.Database.URL = config.NewDatabaseURL(s.postgres.DSN())
	if !c.Serve {
		s.settings.HTTP.Address = "127.0.0.1:0"
	}
	if err := s.migrate(ctx, c); err != nil {
		return s, err
	}
	if s.pool, err = app.OpenPool(ctx, s.settings.Database, app.ReadPool, 2); err != nil {
		return s, err
	}
	client := app.KafkaClient(s.settings.Kafka)
	s.publisher, err = publish.Open(ctx, publish.Config{
		Client: client, Topic: topic, Create: true, Partitions: int32(c.Partitions), Logger: c.Logger,
	})
	if err != nil {
		return s, err
	}
	if s.reader, err = kafkaio.NewTopicReader(client, c.Logger); err != nil {
		return s, err
	}
	program, err := app.New(ctx, s.settings, c.Logger)
	if err != nil {
		return s, err
	}
	s.projector = startProjector(ctx, program)
	return s, nil
}

func (s *services) migrate(ctx context.Context, c Config) error {
	migrator, err := app.OpenMigrator(s.settings.Database, c.Logger)
	if err != nil {
		return err
	}
	_, err = migrator.Up(ctx)
	if err = errors.Join(err, migrator.Close()); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return nil
}

// stop ends what was started, last things first.
func (s *services) stop(ctx context.Context) error {
	var err error
	if s.projector != nil {
		err = s.projector.stop()
	}
	if s.reader != nil {
		s.reader.Close()
	}
	if s.publisher != nil {
		s.publisher.Close()
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop(ctx))
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	return err
}

// projector is the program itself, running.
type projector struct {
	app    *app.App
	cancel context.CancelFunc
	ended  chan struct{} // closed once it has stopped
	err    error         // why, once it has
}

func startProjector(ctx context.Context, program *app.App) *projector {
	// It is stopped by stop alone, so that everything ends in order.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &projector{app: program, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = program.Run(running)
	}()
	return p
}

// stop ends the program and returns its error.
func (p *projector) stop() error {
	p.cancel()
	<-p.ended
	return p.err
}

// serve waits for the end of ctx or of the program.
func (s *services) serve(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.projector.ended:
		return nil // stop returns its error
	}
}

func (s *services) printAddresses(out io.Writer) {
	brokers, dsn := strings.Join(s.kafka.Brokers(), ","), s.postgres.DSN()
	fmt.Fprintf(out, `
Everything stays up until you interrupt it (Ctrl-C).

  Kafka       %[1]s
  PostgreSQL  %[2]s
  health      http://%[3]s/livez, /readyz and /healthz/consumption
  metrics     http://%[3]s/metrics

Try, in another terminal:

  export KAFKA_BOOTSTRAP_SERVERS=%[1]s DATABASE_URL='%[2]s'
  orderprojector orders list --limit 5
  orderprojector generate --topic %[4]s --orders 100000 --faults
  psql "$DATABASE_URL" -c 'SELECT state, projection_status, count(*) FROM orders GROUP BY 1, 2 ORDER BY 1, 2'
`, brokers, dsn, s.projector.app.HTTPAddr(), topic)
}
