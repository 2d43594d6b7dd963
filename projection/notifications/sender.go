package notifications

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection"
)

// Defaults of SenderConfig.
const (
	DefaultConcurrency  = 4
	DefaultPollInterval = time.Second
	DefaultQueueTimeout = 5 * time.Second
)

const (
	// outageCap is the longest pause while nothing gets through: once the receiver is back, work goes on soon.
	outageCap = 5 * time.Second
	// failureCap is the longest pause of a notification that fails while others are sent.
	failureCap = 5 * time.Minute
	// afterCap bounds for how long a receiver is believed that wants to be left alone.
	afterCap = time.Hour
	// freshFor is how long a notification counts as just written.
	freshFor = 10 * time.Second
	maxFresh = 10_000
)

// SenderConfig is what a Sender is made of. Zero values mean the defaults.
type SenderConfig struct {
	Queue    Queue    // required
	Receiver Receiver // required
	Worker   string   // names the process, for people; required
	// Idempotent says that the receiver acts once on each key, so that what it may have got can be sent again without asking.
	Idempotent bool
	// Gate, while it is closed, keeps notifications from being claimed; nil is always open.
	Gate       projection.Gate
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Hint       func(error) string

	Concurrency  int           // calls at the same time
	PollInterval time.Duration // between looks for what others have left behind
	QueueTimeout time.Duration // deadline of one transaction
	Grace        time.Duration // for calls under way when Run's context ends (5 s)
}

// Sender calls the receiver for what is due. Several senders may work on one queue.
type Sender struct {
	cfg     SenderConfig
	log     *slog.Logger
	metrics *senderMetrics
	slots   chan struct{}
	wake    chan struct{} // capacity 1
	calls   sync.WaitGroup

	mu        sync.Mutex
	fresh     map[string]time.Time // when the notification of an event was written
	notBefore time.Time            // no call before
	outage    int                  // calls in a row that did not get through
	since     time.Time            // of the first of them
	lastErr   error
}

// NewSender returns a sender, or an error that names the field that is wrong.
func NewSender(cfg SenderConfig) (*Sender, error) {
	switch {
	case cfg.Queue == nil:
		return nil, errors.New("sender: Queue is missing")
	case cfg.Receiver == nil:
		return nil, errors.New("sender: Receiver is missing")
	case cfg.Worker == "":
		return nil, errors.New("sender: Worker is empty")
	case cfg.Concurrency < 0 || cfg.PollInterval < 0 || cfg.QueueTimeout < 0 || cfg.Grace < 0:
		return nil, errors.New("sender: a negative number or duration")
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.PollInterval = cmp.Or(cfg.PollInterval, DefaultPollInterval)
	cfg.QueueTimeout = cmp.Or(cfg.QueueTimeout, DefaultQueueTimeout)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Hint == nil {
		cfg.Hint = func(error) string { return "" }
	}
	return &Sender{
		cfg: cfg, log: cfg.Logger, metrics: newSenderMetrics(cfg.Registerer),
		slots: make(chan struct{}, cfg.Concurrency), wake: make(chan struct{}, 1), fresh: make(map[string]time.Time),
	}, nil
}

// Written tells the sender of notifications that this process has just written, of events that nobody can have dealt
// with before: for them, the receiver need not be asked first. It is safe for concurrent use.
func (s *Sender) Written(eventIDs []string) {
	now := time.Now()
	s.mu.Lock()
	if len(s.fresh)+len(eventIDs) > maxFresh {
		for id, at := range s.fresh {
			if now.Sub(at) > freshFor {
				delete(s.fresh, id)
			}
		}
	}
	for _, id := range eventIDs {
		if len(s.fresh) < maxFresh { // the others are asked for, which is slower and as right
			s.fresh[id] = now
		}
	}
	s.mu.Unlock()
	s.rouse()
}

func (s *Sender) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// takeFresh reports whether the notification was just written, once.
func (s *Sender) takeFresh(eventID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, written := s.fresh[eventID]
	delete(s.fresh, eventID)
	return written && time.Since(at) < freshFor
}

// lease is how long a claim lasts: both calls that may be made, and some time to write down what came of them.
func (s *Sender) lease() time.Duration { return 2*s.cfg.Receiver.Timeout() + 3*time.Second }

// Run sends what is due until ctx ends. Calls under way may finish within the grace time; what is cut off then is
// asked about later.
func (s *Sender) Run(ctx context.Context) {
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	for ctx.Err() == nil {
		claimed := s.claim(ctx)
		for _, c := range claimed {
			s.calls.Go(func() {
				defer func() { <-s.slots; s.rouse() }()
				s.deal(calls, c)
			})
		}
		if len(claimed) == 0 {
			s.rest(ctx)
		}
	}
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(s.cfg.Grace):
		cut()
		<-done
	}
}

// rest waits until there may be something to do.
func (s *Sender) rest(ctx context.Context) {
	s.mu.Lock()
	pause := time.Until(s.notBefore)
	s.mu.Unlock()
	wake := s.wake
	if pause > 0 {
		wake = nil // whatever comes, the receiver is left alone for now
	} else {
		pause = s.cfg.PollInterval
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// claim takes what there are free slots for. While the receiver does not answer, one call at a time finds out whether it does again.
func (s *Sender) claim(ctx context.Context) []*Claimed {
	if s.cfg.Gate != nil {
		if _, closed := s.cfg.Gate.Closed(); closed != nil {
			return nil
		}
	}
	s.mu.Lock()
	wait, limit := time.Until(s.notBefore) > 0, s.cfg.Concurrency
	if s.outage > 0 {
		limit = 1
	}
	s.mu.Unlock()
	if wait {
		return nil
	}
	free := 0
	for free < limit {
		select {
		case s.slots <- struct{}{}:
			free++
			continue
		default:
		}
		break
	}
	if free == 0 {
		return nil
	}
	queueCtx, cancel := context.WithTimeout(ctx, s.cfg.QueueTimeout)
	defer cancel()
	claimed, err := s.cfg.Queue.Claim(queueCtx, s.cfg.Worker, free, s.lease())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("claiming notifications failed, trying again", "error", err, "hint", s.cfg.Hint(err))
	}
	for range free - len(claimed) {
		<-s.slots
	}
	return claimed
}

// deal does what is to be done about a claimed notification.
func (s *Sender) deal(ctx context.Context, c *Claimed) {
	log := s.log.With("event_id", c.EventID, "order_id", c.OrderID, "attempt", c.Attempts)
	lost := c.State == notification.Unknown
	isFresh := s.takeFresh(c.EventID)
	switch {
	case lost && !s.cfg.Receiver.Askable() && !s.cfg.Idempotent:
		log.Error("the receiver may have acted on a notification, cannot be asked, and may act twice: it waits for an operator",
			"hint", "find out at the receiver, then: orderprojector notifications retry, or cancel")
		s.finish(ctx, log, c, notification.Lose, Result{Waits: true, Error: "the outcome is unknown, and the receiver cannot be asked"})
		return
	case s.cfg.Receiver.Askable() && (lost || !isFresh):
		if !s.ask(ctx, log, c) {
			return
		}
	}
	if lost || !isFresh {
		// Time has passed since the claim.
		queueCtx, cancel := context.WithTimeout(ctx, s.cfg.QueueTimeout)
		mine, err := s.cfg.Queue.Begin(queueCtx, c, s.lease())
		cancel()
		switch {
		case err != nil:
			log.Warn("the attempt at a notification is not noted, so nothing is sent", "error", err, "hint", s.cfg.Hint(err))
			return
		case !mine:
			log.Info("somebody else has claimed the notification by now")
			return
		}
		c.State = notification.Sending
	}
	s.send(ctx, log, c)
}

// ask asks the receiver, and reports whether the notification is to be sent.
func (s *Sender) ask(ctx context.Context, log *slog.Logger, c *Claimed) bool {
	answer := s.cfg.Receiver.Ask(ctx, c.Key)
	s.metrics.questions.WithLabelValues(string(answer.Verdict)).Inc()
	s.heard(answer)
	unsent := c.State == notification.Sending
	switch {
	case answer.Verdict == Acted:
		log.Info("the receiver has acted on a notification already")
		s.finish(ctx, log, c, notification.Accept, Result{Status: answer.Status, Unsent: unsent})
		return false
	case answer.Verdict == NotActed && c.Failures >= MaxFailures:
		s.finish(ctx, log, c, notification.Refuse, Result{Status: answer.Status, Error: fmt.Sprintf("it failed %d times while others were sent", c.Failures), Unsent: unsent})
		return false
	case answer.Verdict == NotActed:
		return true
	}
	log.Warn("the receiver does not say whether it has acted on a notification; it is asked again", "status", answer.Status, "error", answer.Err)
	s.finish(ctx, log, c, notification.Lose, Result{Status: answer.Status, Error: text(answer.Err), Pause: s.pause(c, answer), Unsent: unsent})
	return false
}

func (s *Sender) send(ctx context.Context, log *slog.Logger, c *Claimed) {
	began := time.Now()
	answer := s.cfg.Receiver.Deliver(ctx, c.Message)
	s.metrics.duration.Observe(time.Since(began).Seconds())
	s.metrics.calls.WithLabelValues(string(answer.Verdict)).Inc()
	s.heard(answer)
	result := Result{Status: answer.Status, Error: text(answer.Err), Failed: answer.Verdict != Acted, Pause: s.pause(c, answer)}
	switch answer.Verdict {
	case Acted:
		s.finish(ctx, log, c, notification.Accept, result)
	case Refused:
		log.Error("the receiver refuses a notification", "status", answer.Status, "error", answer.Err,
			"hint", "have the cause put right, then: orderprojector notifications retry "+c.EventID)
		s.finish(ctx, log, c, notification.Refuse, result)
	case NotNow:
		log.Warn("the receiver does not take a notification now", "status", answer.Status, "error", answer.Err, "again_in", result.Pause)
		s.finish(ctx, log, c, notification.Postpone, result)
	default:
		log.Warn("it is not known whether the receiver has acted on a notification", "status", answer.Status, "error", answer.Err)
		s.finish(ctx, log, c, notification.Lose, result)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// finish writes what came of a claim down. When that fails, the claim runs out, and somebody asks the receiver.
func (s *Sender) finish(ctx context.Context, log *slog.Logger, c *Claimed, on notification.Event, r Result) {
	next, err := notification.Next(c.State, on)
	if err != nil {
		log.Error("a notification cannot go on", "error", err)
		return
	}
	r.State = next
	for tries := 0; ; tries++ {
		// What is known is written, also when the program stops.
		queueCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.QueueTimeout)
		state, err := s.cfg.Queue.Finish(queueCtx, c, r)
		cancel()
		switch {
		case err == nil && state == "":
			log.Info("somebody else has claimed the notification by now; what came of this attempt is not written", "state", r.State)
			return
		case err == nil:
			s.metrics.results.WithLabelValues(string(state)).Inc()
			if state == notification.Failed && next != notification.Failed {
				log.Error("a notification failed too often while others were sent", "failures", MaxFailures, "error", r.Error,
					"hint", "have the cause put right, then: orderprojector notifications retry "+c.EventID)
			}
			return
		case tries == 2 || ctx.Err() != nil:
			log.Warn("what came of a notification is not written; the receiver will be asked", "error", err, "hint", s.cfg.Hint(err))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond << tries):
		}
	}
}

// heard takes from an answer whether the receiver can be reached, and for how long it wants to be left alone.
func (s *Sender) heard(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a.Verdict {
	case Acted, NotActed, Refused:
		s.outage, s.lastErr = 0, nil
	default:
		if s.outage++; s.outage == 1 {
			s.since = time.Now()
		}
		s.lastErr = a.Err
		// One that fails among others says nothing of the receiver.
		pause := outageCap
		if s.outage < 8 {
			pause = min(outageCap, 20*time.Millisecond<<s.outage)
		}
		s.until(time.Now().Add(pause))
	}
	if a.After > 0 {
		s.until(time.Now().Add(min(a.After, time.Minute)))
	}
}

func (s *Sender) until(at time.Time) {
	if at.After(s.notBefore) {
		s.notBefore = at
	}
}

// Trouble says what keeps notifications from being sent, if that has lasted for so long. It is safe for concurrent use.
func (s *Sender) Trouble(limit time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outage == 0 || time.Since(s.since) < limit {
		return nil
	}
	return fmt.Errorf("no notification got through for %s, %d calls in a row: %w", time.Since(s.since).Round(time.Second), s.outage, s.lastErr)
}

// pause is how long a notification waits before its next attempt.
func (s *Sender) pause(c *Claimed, a Answer) time.Duration {
	pause := time.Second
	for range min(c.Failures, 30) {
		if pause *= 2; pause >= failureCap {
			pause = failureCap
			break
		}
	}
	pause += rand.N(pause/4 + 1)
	return max(pause, min(a.After, afterCap))
}
