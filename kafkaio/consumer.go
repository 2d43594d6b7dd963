package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// Consumer is a member of a consumer group that hands the records of its
// partitions to a projection.Handler, and commits offsets only after the
// handler has made the records durable.
type Consumer struct {
	client  ClientConfig
	cfg     ConsumerConfig
	handler projection.Handler
	logger  *slog.Logger
	metrics *metrics
	contact contact

	mu      sync.Mutex
	running bool
	waiting string // why there is no session
	current *session
}

// NewConsumer checks the configuration and registers metrics; it does not
// connect. reg may be nil; it must not hold another consumer's metrics.
func NewConsumer(client ClientConfig, cfg ConsumerConfig, h projection.Handler, logger *slog.Logger, reg prometheus.Registerer) (*Consumer, error) {
	if _, err := client.Options(logger); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("consumer configuration: %w", err)
	}
	c := &Consumer{
		client:  client,
		cfg:     cfg.withDefaults(),
		handler: h,
		logger:  logger,
		metrics: newMetrics(),
		waiting: "the consumer was not started",
	}
	if reg != nil {
		if err := c.metrics.register(reg, c); err != nil {
			return nil, fmt.Errorf("registering consumer metrics: %w", err)
		}
	}
	return c, nil
}

// Run consumes until ctx ends, then stops within the shutdown grace time and
// returns nil: batches in flight finish or are abandoned, what is durable is
// committed, and the group is left unless the member is static.
//
// Errors that pass are retried inside. It returns an error for what another
// try cannot heal: a compacted topic, a fenced instance ID, a panic of the
// handler, and lost records under ExitOnDataLoss. It can be called once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("the consumer is running already")
	}
	c.running = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running, c.current, c.waiting = false, nil, "the consumer has stopped"
		c.mu.Unlock()
	}()

	c.contact.answered() // the time without contact starts now
	for fails := 0; ; fails++ {
		began := time.Now()
		err := c.runSession(ctx)
		switch {
		case isFatal(err):
			return err
		case ctx.Err() != nil:
			return nil
		}
		c.without(err.Error())
		c.logger.Warn("the kafka session ended, starting another", "error", err)
		if time.Since(began) > time.Minute {
			fails = 0
		}
		sleep(ctx, backoff(fails))
	}
}

// without notes why there is no session.
func (c *Consumer) without(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.waiting = nil, reason
}

func (c *Consumer) runSession(ctx context.Context) error {
	id, err := c.awaitTopic(ctx)
	if err != nil {
		return err
	}
	s, err := c.newSession(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.current, c.waiting = s, ""
	c.mu.Unlock()
	return s.run(ctx)
}

// awaitTopic waits until the topic exists and is fit to be consumed.
func (c *Consumer) awaitTopic(ctx context.Context) (projection.TopicID, error) {
	opts, err := c.client.Options(c.logger)
	if err != nil {
		return projection.TopicID{}, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return projection.TopicID{}, fmt.Errorf("creating a kafka client: %w", err)
	}
	defer client.Close()
	for fails := 0; ; fails++ {
		id, partitions, err := lookupTopic(ctx, client, c.cfg.Topic)
		if err == nil {
			err = checkTopicConfig(ctx, kadm.NewClient(client), c.cfg.Topic, c.logger)
		}
		switch {
		case err == nil:
			c.contact.answered()
			c.logger.Info("topic found", "topic", c.cfg.Topic, "topic_id", id, "partitions", partitions, "group", c.cfg.Group)
			return id, nil
		case isFatal(err):
			return id, err
		case errors.Is(err, errTopicMissing):
			err = fmt.Errorf("%w (create it, or check --topic)", err)
		}
		c.contact.failed(err)
		c.without(err.Error())
		if fails%10 == 0 && ctx.Err() == nil {
			c.logger.Warn("waiting for the topic", "topic", c.cfg.Topic, "error", err)
		}
		if !sleep(ctx, backoff(fails)) {
			return id, ctx.Err()
		}
	}
}
