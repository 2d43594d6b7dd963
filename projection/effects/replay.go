package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

const (
	replayBatch = 1000
	// maxMissing is how many effects that are or would be added a result lists; all are counted.
	maxMissing = 1000
)

// ReplayConfig says which stretches of the log are read again, and how.
type ReplayConfig struct {
	Log      projection.Log
	Ranges   []projection.LogRange // each up to the watermark at most: what is above is left to the members
	Orders   []string              // only records of these order IDs; empty for all
	Execute  bool                  // without it, each batch is decided and rolled back
	Rate     float64               // records per second; 0 for as fast as possible
	Progress func(projection.ReplayProgress)
}

// ReplayResult is what a replay did, or would do.
type ReplayResult struct {
	Policy  Policy `json:"policy"`
	Records int64  `json:"records"`
	// Outcomes counts records by what came of them: applied and suppressed ones were missing.
	Outcomes map[string]int64 `json:"outcomes"`
	Missing  []MissingEffect  `json:"missing"` // the first of them
}

// MissingEffect is an event that was not consumed.
type MissingEffect struct {
	EventID   string `json:"event_id"`
	OrderID   string `json:"order_id"`
	Type      string `json:"type"`
	Effect    string `json:"effect"` // applied, duplicate or suppressed
	Partition int32  `json:"kafka_partition"`
	Offset    int64  `json:"kafka_offset"`
}

// Replay reads stretches of the log again and deals with what is not consumed, as the policy says: effects are
// added once, or the events are recorded as consumed without any. Records that were refused or are held keep their place: nothing
// becomes a dead letter. It moves no offsets.
//
// The result says how far it came, with an error too. A dry run decides each batch alone, so
// that an event that comes twice may be counted as missing twice.
func (c *Consumer[T]) Replay(ctx context.Context, cfg ReplayConfig) (*ReplayResult, error) {
	if cfg.Log == nil {
		return nil, errors.New("replay: Log is required")
	}
	r := &replay[T]{
		consumer: c, cfg: cfg, began: time.Now(), tries: c.retrier.Attempts(c.log, projection.TopicPartition{}),
		result: &ReplayResult{Policy: c.cfg.Effect.Policy(), Outcomes: map[string]int64{}, Missing: []MissingEffect{}},
	}
	for _, s := range cfg.Ranges {
		r.total += s.Until - s.From
	}
	for _, s := range cfg.Ranges {
		if err := r.stretch(ctx, s); err != nil {
			return r.result, fmt.Errorf("replaying %s: %w", s.TopicPartition, err)
		}
	}
	return r.result, nil
}

type replay[T Tx] struct {
	consumer *Consumer[T]
	cfg      ReplayConfig
	began    time.Time
	tries    *projection.Attempts
	done     int64
	total    int64
	result   *ReplayResult
}

func (r *replay[T]) stretch(ctx context.Context, s projection.LogRange) error {
	passed := s.From
	pass := func(next int64) {
		r.done += next - passed
		passed = next
		if r.cfg.Progress != nil {
			r.cfg.Progress(projection.ReplayProgress{TopicPartition: s.TopicPartition, Next: next, Done: r.done, Total: r.total, Elapsed: time.Since(r.began)})
		}
	}
	var records []projection.Record
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		if err := r.batch(ctx, records); err != nil {
			return err
		}
		pass(records[len(records)-1].Offset + 1)
		records = nil
		return r.pace(ctx)
	}
	err := r.cfg.Log.ReadRange(ctx, s, func(rec projection.Record) error {
		records = append(records, rec)
		if len(records) < replayBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		pass(s.Until)
	}
	return err
}

func (r *replay[T]) pace(ctx context.Context) error {
	if r.cfg.Rate <= 0 {
		return nil
	}
	due := r.began.Add(time.Duration(float64(r.result.Records) / r.cfg.Rate * float64(time.Second)))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due)):
		return nil
	}
}

func (r *replay[T]) batch(ctx context.Context, records []projection.Record) error {
	c := r.consumer
	items := make([]*item, 0, len(records))
	for i := range records {
		it := c.newItem(&records[i])
		it.again = true
		if len(r.cfg.Orders) == 0 || slices.Contains(r.cfg.Orders, it.letter("").OrderID) {
			items = append(items, &it)
		}
	}
	job := &replayJob[T]{replay: r, left: items, seen: older{}}
	if err := c.retrier.Run(ctx, r.tries, job); err != nil {
		return err
	}
	r.result.Records += int64(len(items))
	for _, it := range items {
		what := it.outcome.String()
		if job.failed[it] {
			what = "failed"
		}
		if it.effect == effectSuppressed {
			what = effectSuppressed
		}
		r.result.Outcomes[what]++
		if it.effect != "" && len(r.result.Missing) < maxMissing {
			r.result.Missing = append(r.result.Missing, MissingEffect{
				EventID: it.event.EventID, OrderID: it.event.OrderID, Type: it.event.Type, Effect: it.effect,
				Partition: it.event.Record.Partition, Offset: it.event.Record.Offset,
			})
		}
	}
	return nil
}

// replayJob decides records again. A piece is a record. One that fails keeps the place that it has: its letter, or the held records.
type replayJob[T Tx] struct {
	*replay[T]
	left   []*item
	seen   older
	failed map[*item]bool
}

// What implements projection.Job.
func (j *replayJob[T]) What(n int) string {
	return fmt.Sprintf("replaying offsets %d to %d", j.left[0].event.Record.Offset, j.left[n-1].event.Record.Offset)
}

// Left implements projection.Job.
func (j *replayJob[T]) Left() int { return len(j.left) }

// Answer implements projection.Job.
func (j *replayJob[T]) Answer(ctx context.Context, err error) (bool, error) {
	return j.consumer.answer(ctx, err, j.seen)
}

// Suspect implements projection.Job.
func (j *replayJob[T]) Suspect(_ context.Context, n int, _ projection.Failure, err error) int {
	failed, ok := isOneOf[*failedError](err)
	if !ok {
		return -1
	}
	return slices.IndexFunc(j.left[:n], func(it *item) bool { return it.event.Record == failed.record })
}

// Try implements projection.Job.
func (j *replayJob[T]) Try(ctx context.Context, n int) error {
	err := j.consumer.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) error {
		if err := j.consumer.claim(ctx, tx); err != nil {
			return err
		}
		if err := j.consumer.decide(ctx, tx, j.left[:n], j.seen); err != nil {
			return err
		}
		if !j.cfg.Execute {
			return errDryRun
		}
		return nil
	})
	if err == nil || errors.Is(err, errDryRun) {
		j.left = j.left[n:]
		return nil
	}
	return err
}

// Alone implements projection.Job.
func (j *replayJob[T]) Alone(_ context.Context, class projection.Failure, cause error) error {
	it := j.left[0]
	_, failed := isOneOf[*failedError](cause)
	switch {
	case class == projection.BadData:
		it.blame(cause)
	case failed:
		if j.failed == nil {
			j.failed = make(map[*item]bool)
		}
		it.outcome, it.effect = projection.Held, ""
		j.failed[it] = true
	default:
		return cause
	}
	j.left = j.left[1:]
	return nil
}
