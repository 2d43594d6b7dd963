package kafkaio

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/orderprojector/orderprojector/projection"
)

// A session is one life of the consumer's clients, with one incarnation of the
// topic. It ends when its context does, or with the first error that the
// clients cannot recover from.
type session struct {
	cfg     ConsumerConfig
	topicID projection.TopicID
	handler projection.Handler
	logger  *slog.Logger
	metrics *metrics
	health  *contact

	admin     *kadm.Client
	raw       *rawFetcher
	fetcher   *fetcher
	member    *member
	committer *committer

	doubted chan struct{} // capacity 1: look at the topic's identity now
	begun   chan struct{} // capacity 1: list the bounds of the logs now
	failure chan error    // capacity 1: the error that ends the session

	mu      sync.Mutex
	closing bool
	workers map[int32]*worker
}

func (c *Consumer) newSession(topicID projection.TopicID) (*session, error) {
	s := &session{
		cfg:     c.cfg,
		topicID: topicID,
		handler: c.handler,
		logger:  c.logger,
		metrics: c.metrics,
		health:  &c.contact,
		doubted: make(chan struct{}, 1),
		begun:   make(chan struct{}, 1),
		failure: make(chan error, 1),
		workers: make(map[int32]*worker),
	}
	fetchOpts, err := c.client.Options(c.logger)
	if err != nil {
		return nil, err
	}
	memberOpts, err := c.client.Options(c.logger)
	if err != nil {
		return nil, err
	}
	if s.fetcher, err = newFetcher(c.client.instrument(fetchOpts, "kafka_fetcher"), c.cfg, topicID, s.doubt); err != nil {
		return nil, err
	}
	s.raw = newRawFetcher(s.fetcher.client)
	s.admin = kadm.NewClient(s.fetcher.client)
	s.committer = newCommitter(func(ctx context.Context, positions map[int32]int64) (map[int32]error, error) {
		return s.member.commit(ctx, positions)
	})
	if s.member, err = newMember(c.client.instrument(memberOpts, "kafka_member"), c.cfg, c.logger, s); err != nil {
		s.fetcher.client.Close()
		return nil, err
	}
	s.member.open()
	return s, nil
}

// run works until ctx ends (nil) or the session fails.
func (s *session) run(ctx context.Context) error {
	// The loops outlive ctx: shutting down needs them until the last commit.
	loops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	for _, loop := range []func(context.Context) error{s.fetcher.run, s.member.watch, s.commitLoop, s.watchLoop} {
		running.Go(func() {
			if err := loop(loops); err != nil {
				s.fail(err)
			}
		})
	}

	var err error
	select {
	case <-ctx.Done():
		s.logger.Info("stopping: batches in flight may finish", "grace", s.cfg.ShutdownGrace)
	case err = <-s.failure:
	}
	// After a topic was created anew, positions belong to the log that is gone.
	s.shutdown(loops, !errors.Is(err, errTopicRecreated) && !errors.Is(err, errTopicMissing))
	cancel()
	running.Wait()
	return err
}

// fail ends the session with the first error reported.
func (s *session) fail(err error) {
	select {
	case s.failure <- err:
	default:
	}
}

func (s *session) doubt() { signal(s.doubted) }

// signal sends to a channel of capacity 1 what nobody has to receive twice.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// shutdown takes at most the grace time: workers get two thirds of it, or all
// but three seconds, and committing and leaving the group the rest.
func (s *session) shutdown(ctx context.Context, commit bool) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownGrace)
	defer cancel()
	s.mu.Lock()
	s.closing = true
	var partitions []int32
	for partition := range s.workers {
		partitions = append(partitions, partition)
	}
	s.mu.Unlock()

	s.giveUp(ctx, partitions, s.cfg.ShutdownGrace-min(s.cfg.ShutdownGrace/3, 3*time.Second), commit)
	s.member.close(ctx)
	closeClient(ctx, s.fetcher.client, s.logger)
}

// assigned begins new partitions. It returns at once: the group waits for it.
func (s *session) assigned(partitions []int32, rebalanced bool) {
	if rebalanced {
		s.metrics.rebalances.Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	for _, partition := range partitions {
		if s.workers[partition] != nil {
			continue
		}
		w := newWorker(s, partition)
		s.workers[partition] = w
		go w.run()
	}
}

// revoked finishes or abandons what is in flight and commits. A third of the
// rebalance timeout is left for committing and for slow brokers.
func (s *session) revoked(partitions []int32) {
	if len(partitions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RebalanceTimeout*2/3)
	defer cancel()
	s.logger.Info("partitions revoked", "topic", s.cfg.Topic, "partitions", slices.Sorted(slices.Values(partitions)))
	s.giveUp(ctx, partitions, s.cfg.RebalanceTimeout/3, true)
}

// lost abandons partitions that may belong to somebody else already.
func (s *session) lost(partitions []int32) {
	if len(partitions) == 0 {
		return
	}
	s.logger.Warn("partitions lost", "topic", s.cfg.Topic, "partitions", slices.Sorted(slices.Values(partitions)))
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RebalanceTimeout/3)
	defer cancel()
	s.giveUp(ctx, partitions, 0, false)
}

// giveUp stops workers, waits for their batches, abandons those that take
// longer than patience, and forgets the partitions. A handler that ignores its
// context is left behind when ctx ends: what it still does finds no ownership.
func (s *session) giveUp(ctx context.Context, partitions []int32, patience time.Duration, commit bool) {
	s.mu.Lock()
	var leaving []*worker
	for _, partition := range partitions {
		if w := s.workers[partition]; w != nil {
			leaving = append(leaving, w)
		}
	}
	s.mu.Unlock()

	for _, w := range leaving {
		w.stop()
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, w := range leaving {
		waitFor(patient, w.done)
	}
	for _, w := range leaving {
		if !isDone(w.done) && w.state.busy() {
			w.logger.Warn("a batch in flight is abandoned", "waited", patience)
		}
		w.abandon()
	}
	unwind, cancel := context.WithTimeout(ctx, min(3*time.Second, max(s.cfg.ShutdownGrace/6, 100*time.Millisecond)))
	defer cancel()
	stays := make([]*ownership, 0, len(leaving))
	for _, w := range leaving {
		if waitFor(unwind, w.done); !isDone(w.done) {
			w.logger.Error("the handler does not react to its context; leaving it behind")
			s.fetcher.stop(w.feed)
		}
		stays = append(stays, w.stay)
	}
	if err := s.committer.release(ctx, stays, commit); err != nil {
		s.logger.Warn("committing given-up partitions failed: their next owner reads some records again", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range leaving {
		delete(s.workers, w.tp.Partition)
	}
}

// groupFailed is told what ended the membership; the client joins again by itself.
func (s *session) groupFailed(err error) {
	if isFatal(err) {
		s.fail(err)
		return
	}
	if s.member.failures()%10 == 1 {
		s.logger.Warn("the group membership failed, joining again", "group", s.cfg.Group, "error", err)
	}
}

func (s *session) commitLoop(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.CommitInterval)
	defer ticker.Stop()
	for fails := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := s.committer.flush(ctx)
		if err == nil {
			fails = 0
			continue
		}
		switch {
		case ctx.Err() != nil:
		case rebalancing(err):
			s.logger.Info("the group is rebalancing, committing at the next interval", "error", err)
		case fails%10 == 0:
			s.logger.Warn("committing offsets failed, trying again at the next interval", "error", err)
		}
		fails++
	}
}

// rebalancing reports whether a commit met a group in motion, which is normal.
func rebalancing(err error) bool {
	return errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.StaleMemberEpoch)
}

func (s *session) owned() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	workers := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b *worker) int { return int(a.tp.Partition - b.tp.Partition) })
	return workers
}

func waitFor(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

var _ membership = (*session)(nil)
