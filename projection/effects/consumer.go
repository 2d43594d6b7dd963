package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/projection"
)

// Defaults of Config.
const (
	DefaultWriters      = 2
	DefaultBatchTimeout = projection.DefaultBatchTimeout
	// MaxFailures is how many failures of an effect count before it has failed for good.
	MaxFailures = projection.MaxHeldFailures
)

// Config is what a Consumer is made of. Zero values mean the defaults.
type Config[T Tx] struct {
	Group   string                  // consumer group; names the watermarks and letters. Required
	Effect  Effect[T]               // required
	Store   Store[T]                // required
	Older   projection.RecordReader // reads records again to compare; required
	Decoder projection.Decoder      // EventDecoder when nil
	Logger  *slog.Logger
	// Control says whether the group may consume, and is told when the breaker
	// opens; nil means always, and no breaker.
	Control *projection.Control
	// Registerer takes the metrics; nil means none are exported.
	Registerer prometheus.Registerer
	// Hint says what an operator can do about an error of the store, "" where nothing is known; nil means never.
	Hint func(error) string

	Writers      int           // transactions at the same time
	BatchTimeout time.Duration // deadline of one transaction
	RetryBase    time.Duration // first pause after a failure
	RetryCap     time.Duration // longest pause
	Held         projection.HeldPolicy
}

// Validate names the first field that cannot be right. An effect without a policy is refused.
func (c *Config[T]) Validate() error {
	switch {
	case c.Group == "":
		return errors.New("consumer: Group is empty")
	case c.Effect == nil:
		return errors.New("consumer: Effect is missing")
	case c.Store == nil:
		return errors.New("consumer: Store is missing")
	case c.Older == nil:
		return errors.New("consumer: Older is missing")
	case c.Effect.Name() == "":
		return errors.New("consumer: the effect has no name")
	case c.Writers < 0 || c.BatchTimeout < 0 || c.RetryBase < 0 || c.RetryCap < 0:
		return errors.New("consumer: a negative number or duration")
	}
	if err := c.Effect.Policy().Validate(); err != nil {
		return fmt.Errorf("consumer %s: %w", c.Effect.Name(), err)
	}
	if _, can := c.Effect.(Suppressor[T]); !can && c.Effect.Policy() == Suppress {
		return fmt.Errorf("consumer %s: its policy is %s, but it does not say how", c.Effect.Name(), Suppress)
	}
	return nil
}

// Consumer has the effects of a group's events made, once each. It implements projection.Handler; its partitions
// work at the same time, each in its own order.
type Consumer[T Tx] struct {
	cfg     Config[T]
	log     *slog.Logger
	metrics projection.MemberMetrics
	retrier *projection.Retrier
	held    *projection.HeldWorker[T]

	mu sync.Mutex
	// reached is the highest watermark that this process has seen of a partition: what is below it was dealt
	// with, whatever a database says later that lost commits.
	reached map[projection.TopicPartition]int64
}

// New returns a consumer, or an error that names the field that is wrong.
func New[T Tx](cfg Config[T]) (*Consumer[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Decoder == nil {
		cfg.Decoder = projection.EventDecoder{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Hint == nil {
		cfg.Hint = func(error) string { return "" }
	}
	cfg.Writers = cmp.Or(cfg.Writers, DefaultWriters)
	cfg.BatchTimeout = cmp.Or(cfg.BatchTimeout, DefaultBatchTimeout)
	cfg.RetryBase = cmp.Or(cfg.RetryBase, projection.DefaultRetryBase)
	cfg.RetryCap = cmp.Or(cfg.RetryCap, projection.DefaultRetryCap)
	c := &Consumer[T]{
		cfg: cfg, log: cfg.Logger, metrics: projection.NewMemberMetrics(cfg.Registerer), reached: make(map[projection.TopicPartition]int64),
	}
	c.retrier = projection.NewRetrier(projection.RetrierConfig{
		Slots: cfg.Writers, Timeout: cfg.BatchTimeout, Base: cfg.RetryBase, Cap: cfg.RetryCap,
		Classify: c.classify, Hint: cfg.Hint, Retries: c.metrics.Retries,
	})
	c.held = c.newHeldWorker()
	return c, nil
}

// Troubles returns what holds partitions up now. It is safe for concurrent use.
func (c *Consumer[T]) Troubles() []*projection.Trouble { return c.retrier.Troubles() }

// Assign implements projection.Handler. A group that belongs to another consumer is not touched: the partition halts.
func (c *Consumer[T]) Assign(ctx context.Context, a projection.Assignment) (projection.PartitionHandler, projection.Start, error) {
	log := c.log.With("topic", a.Topic, "partition", a.Partition)
	var begin projection.Beginning
	err := c.retrier.Retry(ctx, c.retrier.Attempts(log, a.TopicPartition), "reading the watermark", func(ctx context.Context) error {
		return c.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) (err error) {
			if err := c.claim(ctx, tx); err != nil {
				return err
			}
			begin, err = projection.Begin(ctx, tx, a)
			return err
		})
	})
	if err != nil {
		return nil, projection.Start{}, err
	}
	begin.Report(log)
	c.metrics.Ahead.WithLabelValues(a.Topic, strconv.Itoa(int(a.Partition))).Set(float64(begin.Ahead))
	c.mu.Lock()
	known := max(begin.CommitAbove, c.reached[a.TopicPartition])
	c.mu.Unlock()
	c.reach(&begin.Progress)
	return &partition[T]{
		Progress: begin.Progress, consumer: c, log: log, known: known, logEnd: max(a.LogEnd, known),
	}, begin.Start, nil
}

func (c *Consumer[T]) claim(ctx context.Context, tx T) error {
	name := c.cfg.Effect.Name()
	owner, err := tx.ClaimGroup(ctx, c.cfg.Group, name)
	if err != nil {
		return fmt.Errorf("looking whose group %s is: %w", c.cfg.Group, err)
	}
	if owner == name {
		return nil
	}
	return &projection.HaltError{
		Reason: fmt.Sprintf("group %s is that of %s, and not of %s", c.cfg.Group, cmp.Or(owner, "the projector"), name),
		Hint:   "each consumer needs a consumer group of its own",
	}
}

// reach notes how far the group has come.
func (c *Consumer[T]) reach(p *projection.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tp := p.Key().TopicPartition
	c.reached[tp] = max(c.reached[tp], p.Seen())
}

// errLostRace rolls a transaction back that another one came before.
var errLostRace = errors.New("another transaction dealt with the same event at the same time")

// LostRace makes an error of an effect that a concurrent transaction came before: the batch is decided again from a fresh read.
func LostRace(what string) error { return fmt.Errorf("%s: %w", what, errLostRace) }

// panicError carries a panic of an effect to where a record can be blamed.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic in the effect: %v", e.value) }

func (c *Consumer[T]) classify(err error) projection.Failure {
	var panicked *panicError
	var failed *failedError
	switch {
	case errors.As(err, &panicked):
		return projection.BadData
	case errors.Is(err, errLostRace):
		return projection.LostRace
	case errors.As(err, &failed):
		return projection.Unhealthy
	}
	return c.cfg.Store.Classify(err)
}
