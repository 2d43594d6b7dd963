package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/demo/receiver"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/demo/shop"
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
	shop      *shop.Shop
	receiver  *receiver.Receiver
	relay     *running
	// members are the consumer groups' only members, the projector first.
	members []*running
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
	if s.shop, err = shop.Open(ctx, s.pool); err != nil {
		return s, err
	}
	return s, s.startPrograms(ctx, c)
}

// startPrograms starts the whole chain, each program as its command would.
func (s *services) startPrograms(ctx context.Context, c Config) (err error) {
	const secret = "of the demonstration"
	if s.receiver, err = receiver.Start(secret); err != nil {
		return err
	}
	s.settings.Notifications.Webhook.URL = s.receiver.URL()
	s.settings.Notifications.Webhook.StatusURL = s.receiver.StatusURL()
	s.settings.Notifications.Webhook.Concurrency = 16
	s.settings.Notifications.Webhook.Secret = config.NewSecret(secret)

	relay, err := app.NewRelay(ctx, s.settings, c.Logger)
	if err != nil {
		return err
	}
	s.relay = start(ctx, "relay", relay)
	for _, member := range []struct {
		name string
		make func(context.Context, config.Config, *slog.Logger) (*app.App, error)
	}{{"projector", app.New}, {"loyalty", app.NewLoyalty}, {"notifications", app.NewNotifications}} {
		program, err := member.make(ctx, s.settings, c.Logger)
		if err != nil {
			return err
		}
		r := start(ctx, member.name, program)
		r.consumer = program.Consumer()
		s.members = append(s.members, r)
	}
	return nil
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
	for _, member := range s.members {
		err = errors.Join(err, member.stop())
	}
	if s.relay != nil {
		err = errors.Join(err, s.relay.stop())
	}
	if s.receiver != nil {
		err = errors.Join(err, s.receiver.Close())
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

func (s *services) projector() *running { return s.members[0] }

// serve waits for the end of ctx or of the program.
func (s *services) serve(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.projector().ended:
		return nil // stop returns its error
	}
}

func (s *services) printAddresses(out io.Writer) {
	brokers, dsn := strings.Join(s.kafka.Brokers(), ","), s.postgres.DSN()
	fmt.Fprintf(out, `
Everything stays up until you interrupt it (Ctrl-C).

  Kafka       %[1]s
  PostgreSQL  %[2]s
  projector   http://%[3]s/livez, /readyz, /healthz/consumption and /metrics
  relay       http://%[5]s, the same
  loyalty     http://%[6]s, the same
  notifying   http://%[7]s, the same; the receiver is at %[8]s

Try, in another terminal:

  export KAFKA_BOOTSTRAP_SERVERS=%[1]s DATABASE_URL='%[2]s'
  orderprojector orders list --limit 5
  orderprojector generate --topic %[4]s --orders 100000 --faults
  go run ./examples/orderservice create o-1 --customer c-1 --total "19.99 EUR"
  go run ./examples/orderservice pay o-1 --payment p-1
  orderprojector points balance c-1
  orderprojector notifications list --limit 5
  psql "$DATABASE_URL" -c 'SELECT state, projection_status, count(*) FROM orders GROUP BY 1, 2 ORDER BY 1, 2'
`, brokers, dsn, s.projector().address(), topic, s.relay.address(), s.members[1].address(), s.members[2].address(), s.receiver.URL())
}
