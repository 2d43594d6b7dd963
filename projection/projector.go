package projection

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
	Decoder Decoder      // JSONDecoder when nil
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
	cfg     ProjectorConfig
	log     *slog.Logger
	metrics *metrics
	budget  *cacheBudget
	writers chan struct{}
	swept   string // where the sweep goes on

	mu       sync.Mutex
	troubles map[TopicPartition]*Trouble
}

var _ Handler = (*Projector)(nil)

// NewProjector returns a projector, or an error that names the field that is wrong.
func NewProjector(cfg ProjectorConfig) (*Projector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Decoder == nil {
		cfg.Decoder = JSONDecoder{}
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
	return &Projector{
		cfg:     cfg,
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		budget:  &cacheBudget{limit: cfg.CacheBytes},
		writers: make(chan struct{}, cfg.Writers),

		troubles: make(map[TopicPartition]*Trouble),
	}, nil
}

// Assign implements Handler. It makes sure that the partition has a watermark
// and starts at the older of that and the group's committed offset: reading
// again is free, so an expired group or a restored database heals itself.
func (p *Projector) Assign(ctx context.Context, a Assignment) (PartitionHandler, Start, error) {
	key := WatermarkKey{Group: a.Group, TopicPartition: a.TopicPartition}
	log := p.log.With("topic", a.Topic, "partition", a.Partition)
	var mark Watermark
	var others []TopicID
	var found bool
	err := p.retry(ctx, p.attempts(log, a.TopicPartition), "reading the watermark", func(ctx context.Context) error {
		return p.cfg.Store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
			if mark, found, err = tx.Watermark(ctx, key); err != nil {
				return fmt.Errorf("reading the watermark: %w", err)
			}
			if others, err = tx.OtherTopicIDs(ctx, key); err != nil {
				return fmt.Errorf("reading earlier watermarks: %w", err)
			}
			if found {
				if mark.SkipTo > 0 && a.Committed != NoOffset && !mark.skipped(a.Committed) {
					return tx.ForgetSkip(ctx, key) // there is a newer commit
				}
				return nil
			}
			if err := tx.InsertWatermark(ctx, key, a.LogStart); err != nil {
				return fmt.Errorf("inserting the watermark: %w", err)
			}
			mark, _, err = tx.Watermark(ctx, key)
			return err
		})
	})
	if err != nil {
		return nil, Start{}, err
	}
	start := Start{Offset: mark.NextOffset, Watermark: mark.NextOffset, CommitAbove: a.Committed}
	if len(others) > 0 && (!found || a.Committed > a.LogEnd) {
		log.Warn("the topic was created anew: watermarks and commits of the old one are not used",
			"topic_id", a.TopicID.String(), "old_topic_id", others[0].String(), "committed", a.Committed, "start", start.Offset)
		start.CommitAbove = NoOffset
	} else if a.Committed != NoOffset && !mark.skipped(a.Committed) {
		// What the log no longer holds cannot be read again, and below the watermark
		// it does not have to be: that is no loss.
		start.Offset = min(start.Offset, max(a.Committed, a.LogStart))
	}
	ahead := int64(0)
	if start.CommitAbove > mark.NextOffset {
		ahead = start.CommitAbove - mark.NextOffset
		log.Error("the group's committed offset is ahead of what is durable in the database; it is not followed",
			"committed", a.Committed, "watermark", mark.NextOffset,
			"hint", "somebody moved the group's offsets, or the database was restored; the records between are read again")
	}
	p.metrics.ahead.WithLabelValues(a.Topic, strconv.Itoa(int(a.Partition))).Set(float64(ahead))
	return &partition{
		projector: p, log: log, key: key, position: start.Offset, seen: mark.NextOffset, generation: mark.Generation,
		cache: newRowCache(p.budget),
	}, start, nil
}

// skipped reports whether a committed offset is from before an operator's skip.
func (w *Watermark) skipped(committed int64) bool {
	return w.SkipTo > 0 && w.SkipFrom <= committed && committed < w.SkipTo
}

// retry repeats an attempt until it succeeds, a *RewindError or *HaltError
// ends it, or ctx does.
func (p *Projector) retry(ctx context.Context, tries *attempts, what string, attempt func(context.Context) error) error {
	for {
		err := p.bounded(ctx, attempt)
		if err == nil || final(err) {
			tries.over()
			return err
		}
		if err := tries.pause(ctx, what, err); err != nil {
			return err
		}
	}
}

// bounded gives one attempt a place among the writers, and its deadline.
func (p *Projector) bounded(ctx context.Context, attempt func(context.Context) error) error {
	select {
	case p.writers <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.writers }()
	attemptCtx, cancel := context.WithTimeout(ctx, p.cfg.BatchTimeout)
	defer cancel()
	err := attempt(attemptCtx)
	if err != nil && timedOut(ctx, attemptCtx) {
		return &deadlineError{after: p.cfg.BatchTimeout, cause: err}
	}
	return err
}

// deadlineError says that a transaction ended by its own deadline.
type deadlineError struct {
	after time.Duration
	cause error
}

func (e *deadlineError) Error() string {
	return fmt.Sprintf("no result within %s: %v", e.after, e.cause)
}
func (e *deadlineError) Unwrap() error { return e.cause }

func final(err error) bool {
	_, rewind := isOneOf[*RewindError](err)
	_, halt := isOneOf[*HaltError](err)
	return rewind || halt
}

func (p *Projector) classify(err error) Failure {
	if _, ok := isOneOf[*panicError](err); ok {
		return BadData
	}
	if errors.Is(err, errGuardMissed) {
		return LostRace
	}
	if _, ok := isOneOf[*deadlineError](err); ok {
		return TooSlow
	}
	return p.cfg.Store.Classify(err)
}
