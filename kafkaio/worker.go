package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// A worker applies the records of one owned partition, in order.
//
// It ends in two steps. stop lets a batch in flight finish and ends everything
// else (assigning, waiting, checking); abandon cancels the batch too.
type worker struct {
	session *session
	tp      projection.TopicPartition
	feed    *feed
	stay    *ownership
	logger  *slog.Logger
	state   *partitionState

	stopping context.Context
	stop     context.CancelFunc
	batch    context.Context
	abandon  context.CancelFunc
	done     chan struct{}

	position  int64
	watermark int64 // as it was at the assignment
	progress  bool  // a batch was applied since the last restart
}

func newWorker(s *session, partition int32) *worker {
	tp := projection.TopicPartition{Topic: s.cfg.Topic, TopicID: s.topicID, Partition: partition}
	w := &worker{
		session: s,
		tp:      tp,
		feed:    newFeed(tp),
		stay:    s.committer.own(partition),
		logger:  s.logger.With("topic", tp.Topic, "partition", partition),
		state:   newPartitionState(),
		done:    make(chan struct{}),
	}
	// Both outlive the context of Run on purpose: shutting down stops workers
	// in its own order.
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.batch, w.abandon = context.WithCancel(context.Background())
	return w
}

// run serves the partition until it is stopped. A rewind, and a failure that
// may pass, lead back to assigning; a halt waits, so that its reason stays
// visible.
func (w *worker) run() {
	defer close(w.done)
	defer func() {
		if r := recover(); r != nil {
			w.logger.Error("the handler panicked", "panic", r, "stack", string(debug.Stack()))
			w.session.fail(fatalf("%w: %s: %v", ErrHandlerPanic, w.tp, r))
		}
	}()
	for fails := 0; ; fails++ {
		err := w.serve()
		var halt *projection.HaltError
		var rewind *projection.RewindError
		switch {
		case w.stopping.Err() != nil:
			return
		case errors.As(err, &halt): // before there was a handler: nothing can change that
			w.halted(halt)
			<-w.stopping.Done()
			return
		case isFatal(err):
			w.session.fail(err)
			return
		case errors.As(err, &rewind):
			w.logger.Warn("the partition is assigned anew",
				"position", w.position, "to", rewind.To, "reason", rewind.Reason)
		default:
			w.logger.Warn("the partition starts over after a failure", "position", w.position, "error", err)
		}
		w.session.metrics.restarts.Inc()
		w.state.failed(err)
		if w.progress {
			w.progress, fails = false, 0
		}
		if fails > 0 || rewind == nil {
			sleep(w.stopping, backoff(fails))
		}
	}
}

func (w *worker) halted(halt *projection.HaltError) {
	w.state.halted(halt)
	w.logger.Error("the partition is halted, the others go on",
		"reason", halt.Reason, "hint", halt.Hint, "position", w.position)
}

// halt waits, so that the reason stays visible, until an operator moves the
// partition on: the handler's check tells. Records that were damaged on one broker may also be whole on the next leader.
func (w *worker) halt(handler projection.PartitionHandler, halt *projection.HaltError, unreadable bool) error {
	w.halted(halt)
	var rewind *projection.RewindError
	for sleep(w.stopping, w.session.cfg.CheckInterval) {
		err := w.check(handler)
		if err == nil && unreadable && w.readable() == nil {
			err = errReadable
		}
		if errors.As(err, &rewind) || errors.Is(err, errReadable) {
			w.state.resumed()
			return err
		}
	}
	return errStopping
}

// serve assigns the partition and applies records until something ends it.
func (w *worker) serve() error {
	a, b, err := w.describe()
	if err != nil {
		return err
	}
	w.state.described(a, b)
	handler, start, err := w.session.handler.Assign(w.stopping, a)
	if err != nil {
		return err
	}
	defer handler.Close()
	w.session.committer.begin(w.stay, start)
	w.state.assigned(a, b, start)
	signal(w.session.begun) // how old the first record is that waits
	w.position = start.Offset
	w.logger.Info("partition assigned", "start", start.Offset, "committed", a.Committed,
		"log_start", a.LogStart, "log_end", a.LogEnd)
	w.watermark = start.Watermark
	err = w.withinLog(handler, b)
	if err == nil {
		err = w.loop(handler)
		w.holdCommits(err)
		w.session.fetcher.stop(w.feed)
	}
	var halt *projection.HaltError
	if errors.As(err, &halt) {
		_, unreadable := errors.AsType[*projection.UnreadableError](err)
		err = w.halt(handler, halt, unreadable)
		w.holdCommits(err)
	}
	return err
}

// holdCommits ends committing once a rewind is known: the database no longer
// holds what the position says, until the next assignment says where it is.
func (w *worker) holdCommits(err error) {
	if _, rewind := errors.AsType[*projection.RewindError](err); rewind {
		w.session.committer.hold(w.stay)
	}
}

// describe asks the broker about the partition until it answers.
func (w *worker) describe() (projection.Assignment, logBounds, error) {
	s := w.session
	for fails := 0; ; fails++ {
		var b logBounds
		committed, err := committedOffset(w.stopping, s.admin, s.cfg.Group, w.tp)
		if err == nil {
			b, err = bounds(w.stopping, s.admin, w.tp)
		}
		a := projection.Assignment{TopicPartition: w.tp, Group: s.cfg.Group, Committed: committed, LogStart: b.start, LogEnd: b.end}
		if err == nil {
			return a, b, nil
		}
		if w.stopping.Err() != nil {
			return a, b, errStopping
		}
		w.state.failed(err)
		if fails%10 == 0 {
			w.logger.Warn("the broker does not say where the partition begins and ends yet", "error", err)
		}
		if !sleep(w.stopping, backoff(fails)) {
			return a, b, errStopping
		}
	}
}

// withinLog makes sure that the position is inside the log.
func (w *worker) withinLog(handler projection.PartitionHandler, b logBounds) error {
	for tries := 0; ; tries++ {
		switch {
		case w.position < b.start:
			return w.lost(handler, b.start)
		case max(w.position, w.watermark) <= b.end:
			return nil
		case tries == 3:
			// Below the watermark, new records would pass for ones that were read before.
			return &projection.HaltError{
				Reason: fmt.Sprintf("position %d is beyond the end of the log (%d)", max(w.position, w.watermark), b.end),
				Hint:   "the log lost records that are already projected (unclean leader election, or a restored cluster): run verify, then rebuild --orders for what differs",
			}
		}
		// A leader that has just been elected may know less for a moment.
		if !sleep(w.stopping, backoff(tries)) {
			return errStopping
		}
		next, err := bounds(w.stopping, w.session.admin, w.tp)
		if err != nil {
			return err
		}
		b = next
	}
}

// lost deals with records that were removed from the log before they were read.
func (w *worker) lost(handler projection.PartitionHandler, to int64) error {
	from := w.position
	w.session.metrics.dataLoss.Add(float64(to - from))
	w.logger.Error("records were removed from the log before they were read",
		"from", from, "to", to, "records", to-from, "policy", w.session.cfg.OnDataLoss)
	switch w.session.cfg.OnDataLoss {
	case ContinueOnDataLoss:
		if err := handler.Skip(w.stopping, to); err != nil {
			return err
		}
		w.moveTo(to)
		return nil
	case ExitOnDataLoss:
		return fatalf("%w: %s from offset %d to %d", ErrDataLoss, w.tp, from, to)
	default:
		return &projection.HaltError{
			Reason: fmt.Sprintf("the log no longer holds offsets %d to %d, which were not read yet", from, to-1),
			Hint:   "restore the records, or run with --on-data-loss=continue to go on behind them; orders with missing events stay parked",
		}
	}
}

func (w *worker) moveTo(position int64) {
	w.position = position
	w.state.moved(position)
	w.session.committer.move(w.stay, position)
}

// loop applies what arrives, and waits while the gate is closed.
func (w *worker) loop(handler projection.PartitionHandler) error {
	cfg := w.session.cfg
	check := time.NewTimer(cfg.CheckInterval)
	defer check.Stop()
	fetching := false
	var batch []projection.Record
	for w.stopping.Err() == nil {
		changed, closed := cfg.Gate.Closed()
		w.state.closed(closed)
		switch {
		case closed == nil && !fetching:
			w.session.fetcher.start(w.feed, w.position)
			fetching = true
		case closed != nil && fetching:
			// What was fetched is dropped, so that a long pause holds no memory.
			w.session.fetcher.stop(w.feed)
			fetching = false
		}
		if batch = w.feed.take(batch[:0], cfg.MaxBatchRecords, cfg.MaxBatchBytes); len(batch) > 0 {
			w.session.fetcher.taken(w.feed)
			err := w.correctTimes(batch)
			if err == nil {
				err = w.apply(handler, batch)
			}
			clear(batch) // it must not keep the records alive
			if err != nil {
				return err
			}
			if w.feed.empty() {
				batch = nil // there may be many partitions, of which few are busy
			}
			check.Reset(cfg.CheckInterval)
			continue
		}
		if err := w.feed.failure(); err != nil {
			if err := w.refetch(err); err != nil {
				return err
			}
			continue
		}
		select {
		case <-w.feed.ready:
		case <-changed:
		case <-w.stopping.Done():
		case <-check.C:
			if err := w.check(handler); err != nil {
				return err
			}
			check.Reset(cfg.CheckInterval)
		}
	}
	return errStopping
}

// apply hands a batch over. When it returns nil, the position has moved.
func (w *worker) apply(handler projection.PartitionHandler, batch []projection.Record) error {
	for len(batch) > 0 && batch[0].Offset < w.position {
		batch = batch[1:] // a fetch may begin inside a batch of the log
	}
	if len(batch) == 0 {
		return nil
	}
	w.state.applying(batch)
	err := handler.Handle(w.batch, batch)
	w.state.applied()
	if err != nil {
		return err
	}
	last := batch[len(batch)-1]
	w.progress = true
	w.state.progressed(last.Timestamp)
	w.moveTo(last.Offset + 1)
	return nil
}

// check asks the handler whether the database still holds what was stored.
func (w *worker) check(handler projection.PartitionHandler) error {
	ctx, cancel := context.WithTimeout(w.stopping, callTimeout)
	defer cancel()
	err := handler.Check(ctx)
	var rewind *projection.RewindError
	var halt *projection.HaltError
	switch {
	case err == nil:
		w.state.healthy()
		return nil
	case errors.As(err, &rewind), errors.As(err, &halt):
		return err
	case w.stopping.Err() != nil:
		return errStopping
	}
	w.state.failed(err)
	w.logger.Warn("checking the stored position failed, trying again", "error", err)
	return nil
}

// refetch deals with a fetch that failed. When it returns nil the partition is
// fetched again.
func (w *worker) refetch(failure error) error {
	w.state.failed(failure)
	var truncated *kgo.ErrDataLoss
	switch {
	case errors.Is(failure, kerr.OffsetOutOfRange):
		// Whether something was lost depends on where the projection is: while
		// reading again, what was removed is applied already. Assigning looks at both.
		return fmt.Errorf("offset %d is not in the log: %w", w.position, failure)
	case errors.As(failure, &truncated):
		w.session.metrics.dataLoss.Add(float64(max(0, truncated.ConsumedTo-truncated.ResetTo)))
		w.logger.Error("the log lost records that were already read", "error", truncated,
			"from", truncated.ResetTo, "to", truncated.ConsumedTo)
		if w.session.cfg.OnDataLoss == ExitOnDataLoss {
			return fatalf("%w: %s: %w", ErrDataLoss, w.tp, truncated)
		}
		return &projection.HaltError{
			Reason: fmt.Sprintf("the log was truncated from offset %d to %d (unclean leader election)", truncated.ConsumedTo, truncated.ResetTo),
			Hint:   "events that are projected are gone from the topic: run verify, then rebuild --orders for what differs",
		}
	default:
		unreadable, ok := errors.AsType[*projection.UnreadableError](failure) // found by a search
		if !ok {
			unreadable, ok = errors.AsType[*projection.UnreadableError](w.readable())
		}
		if ok {
			return fmt.Errorf("%w: %w", haltAt(unreadable), unreadable)
		}
		w.logger.Warn("fetching failed, trying again", "error", failure, "position", w.position)
		if !sleep(w.stopping, maxBackoff) {
			return errStopping
		}
	}
	w.session.fetcher.seek(w.feed, w.position)
	return nil
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
