package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// copySession is the session that holds the right to publish copies.
const copySession PoolRole = "copies"

// letterCopies publishes copies of the group's dead letters.
type letterCopies struct {
	publisher *lettercopy.Publisher
	topic     *kafkaio.DeadLetterTopic
}

// newLetterCopies returns nil when copies are switched off.
func newLetterCopies(cfg config.Config, logger *slog.Logger, reg prometheus.Registerer) (*letterCopies, error) {
	name := cfg.Kafka.DeadLetters()
	if name == "" {
		return nil, nil
	}
	connect, err := sessionOpener(cfg.Database, copySession)
	if err != nil {
		return nil, err
	}
	topic, err := kafkaio.NewDeadLetterTopic(KafkaClient(cfg.Kafka), name, logger)
	if err != nil {
		return nil, err
	}
	publisher, err := lettercopy.NewPublisher(lettercopy.Config{
		Open: pgstore.OpenCopyQueue(cfg.Kafka.Group, connect), Topic: topic, Logger: logger, Registerer: reg,
	})
	if err != nil {
		return nil, err
	}
	return &letterCopies{publisher, topic}, nil
}

// run publishes until ctx ends.
func (c *letterCopies) run(ctx context.Context) {
	defer c.topic.Close()
	c.publisher.Run(ctx)
}

// sessionOpener returns a function that opens a connection outside of any pool, for work that one
// member at a time may do: the right to it is a lock that ends with the session.
func sessionOpener(db config.Database, role PoolRole) (func(context.Context) (*pgx.Conn, error), error) {
	cfg, err := sessionConfig(db, role)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
		if err != nil {
			return nil, fmt.Errorf("opening a database session: %w", err)
		}
		return conn, nil
	}, nil
}

// sessionConfig configures a connection outside of any pool.
func sessionConfig(db config.Database, role PoolRole) (*pgx.ConnConfig, error) {
	pool, err := parseURL(db.URL)
	if err != nil {
		return nil, err
	}
	cfg := pool.ConnConfig
	configureConn(cfg, db, role)
	// A member whose machine vanished must not keep its lock: the server notices in half a minute.
	for name, value := range map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"} {
		setDefault(cfg.RuntimeParams, name, value)
	}
	pgstore.PrepareSession(cfg)
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return cfg, nil
}
