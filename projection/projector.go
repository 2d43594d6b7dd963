package projection

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of ProjectorConfig.
const (
	DefaultWriters       = 4
	DefaultCacheBytes    = 16 << 20
	DefaultBatchTimeout  = 11 * time.Second // a connection that fell silent is given up in time for work to go on within 15 s
	DefaultSweepInterval = 5 * time.Second
	DefaultRetryBase     = 100 * time.Millisecond
	DefaultRetryCap      = 5 * time.Second
)

// ProjectorConfig is what a Projector is made of. Zero values mean the defaults.
type ProjectorConfig struct {
	Group   string       // consumer group; names the watermarks and letters
	Store   Store        // required
	Decoder Decoder      // EventDecoder when nil
	Older   RecordReader // reads records again to compare; required
	Logger  *slog.Logger
	// Control says whether the group may consume, and is told when the breaker
	// opens; nil means always, and no breaker.
	Control *Control
	// Registerer takes the metrics; nil means none are exported.
	Registerer prometheus.Registerer
	// Hint says what an operator can do about an error of the store, "" where nothing is known; nil means never.
	Hint func(error) string

	Writers       int           // transactions at the same time
	CacheBytes    int64         // memory for remembered rows, all partitions together
	BatchTimeout  time.Duration // deadline of one transaction
	SweepInterval time.Duration
	RetryBase     time.Duration // first pause after a failure
	RetryCap      time.Duration // longest pause
	Held          HeldPolicy    // when held records are tried again
	// NeverHold ends the work with an error that names the record, where the record would be held.
	NeverHold bool
}

// Validate names the first field that cannot be right.
func (c *ProjectorConfig) Validate() error {
	switch {
	case c.Group == "":
		return errors.New("projector: Group is empty")
	case c.Store == nil:
		return errors.New("projector: Store is missing")
	case c.Older == nil:
		return errors.New("projector: Older is missing")
	case c.Writers < 0 || c.CacheBytes < 0 || c.BatchTimeout < 0 || c.SweepInterval < 0 || c.RetryBase < 0 || c.RetryCap < 0:
		return errors.New("projector: a negative number, count or duration")
	}
	return nil
}

// Projector applies records to a Store. It implements Handler; its partitions
// work at the same time, each in its own order.
type Projector struct {
	cfg      ProjectorConfig
	log      *slog.Logger
	metrics  *metrics
	budget   *cacheBudget
	memories batchMemories
	retrier  *Retrier
	held     *HeldWorker[Tx]
	sweeper  *Retrier
	swept    string // where the sweep goes on
	drains   drains
}

var _ Handler = (*Projector)(nil)

// NewProjector returns a projector, or an error that names the field that is wrong.
func NewProjector(cfg ProjectorConfig) (*Projector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Decoder == nil {
		cfg.Decoder = EventDecoder{}
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
	cfg.CacheBytes = cmp.Or(cfg.CacheBytes, DefaultCacheBytes)
	cfg.BatchTimeout = cmp.Or(cfg.BatchTimeout, DefaultBatchTimeout)
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, DefaultSweepInterval)
	cfg.RetryBase = cmp.Or(cfg.RetryBase, DefaultRetryBase)
	cfg.RetryCap = cmp.Or(cfg.RetryCap, DefaultRetryCap)
	p := &Projector{
		cfg:     cfg,
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		budget:  &cacheBudget{limit: cfg.CacheBytes},
		// One is at work for each writer, another is being decoded into.
		memories: make(batchMemories, 2*cfg.Writers),
	}
	p.retrier = NewRetrier(RetrierConfig{
		Slots: cfg.Writers, Timeout: cfg.BatchTimeout, Base: cfg.RetryBase, Cap: cfg.RetryCap,
		Classify: p.classify, Hint: cfg.Hint, Retries: p.metrics.Retries,
	})
	// The sweep has places of its own: an order whose row is locked takes none from the batches.
	p.sweeper = NewRetrier(RetrierConfig{
		Slots: 1, Timeout: min(cfg.BatchTimeout, sweepTimeout), Base: cfg.RetryBase, Cap: cfg.RetryCap,
		Classify: p.classify, Hint: cfg.Hint, Retries: p.metrics.Retries,
	})
	p.held = newHeldWorker(p)
	p.drains.ready = make(chan struct{}, 1)
	return p, nil
}

// RetryHeld tries held records again until ctx ends. Every member runs it.
func (p *Projector) RetryHeld(ctx context.Context) { p.held.Run(ctx) }

// RetryHeldOnce tries what is due now, and returns how many records were tried.
func (p *Projector) RetryHeldOnce(ctx context.Context) (tried int, err error) {
	return p.held.Work(ctx)
}

// Assign implements Handler. See Begin for where it starts.
func (p *Projector) Assign(ctx context.Context, a Assignment) (PartitionHandler, Start, error) {
	log := p.log.With("topic", a.Topic, "partition", a.Partition)
	var begin Beginning
	err := p.retry(ctx, p.attempts(log, a.TopicPartition), "reading the watermark", func(ctx context.Context) error {
		return p.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			begin, err = Begin(ctx, tx, a)
			return err
		})
	})
	if err != nil {
		return nil, Start{}, err
	}
	begin.Report(log)
	p.metrics.Ahead.WithLabelValues(a.Topic, strconv.Itoa(int(a.Partition))).Set(float64(begin.Ahead))
	return &partition{projector: p, log: log, Progress: begin.Progress, cache: newRowCache(p.budget)}, begin.Start, nil
}

func (p *Projector) retry(ctx context.Context, tries *Attempts, what string, attempt func(context.Context) error) error {
	return p.retrier.Retry(ctx, tries, what, attempt)
}

func (p *Projector) bounded(ctx context.Context, attempt func(context.Context) error) error {
	return p.retrier.Bounded(ctx, attempt)
}

func (p *Projector) attempts(log *slog.Logger, tp TopicPartition) *Attempts {
	return p.retrier.Attempts(log, tp)
}

func (p *Projector) classify(err error) Failure {
	if _, ok := isOneOf[*panicError](err); ok {
		return BadData
	}
	if errors.Is(err, errGuardMissed) {
		return LostRace
	}
	if _, ok := isOneOf[*RowError](err); ok {
		return Unhealthy
	}
	if _, ok := isOneOf[*errUndrained](err); ok {
		return Transient
	}
	return p.cfg.Store.Classify(err)
}
