package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/orderprojector/orderprojector/projection/portion"
)

// Relay publishes the messages of an outbox until it is told to stop. Make one with
// New and Run it once.
type Relay struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	health  health
	portion *portion.Portion // of messages, for one statement
}

// New returns a relay, or an error that names what is wrong with its configuration.
func New(cfg Config) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Relay{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer),
		portion: portion.New(portion.Size{Rows: cfg.PageSize, Bytes: cfg.LoadBytes}),
	}, nil
}

// Run publishes until ctx ends; what is in flight then finishes within the stop
// grace. Every failure is waited out.
func (r *Relay) Run(ctx context.Context) {
	wait := newBackoff(r.cfg)
	standby := false
	for ctx.Err() == nil {
		queue, err := r.cfg.Open(ctx)
		switch {
		case errors.Is(err, ErrStandby):
			if !standby {
				r.log.Info("standing by: " + err.Error())
				standby = true
			}
			r.health.standby()
			sleep(ctx, r.cfg.StandbyInterval)
			continue
		case err == nil:
			standby = false
			err = r.serve(ctx, queue, wait)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			r.portion.Halve() // the database did not answer, perhaps because that was too much
		}
		if err != nil && ctx.Err() == nil {
			r.failed(asFailure(err))
			sleep(ctx, wait.NextBackOff())
		}
	}
}

// serve has the queue until ctx ends (nil) or the queue is lost.
func (r *Relay) serve(ctx context.Context, queue Queue, wait *backoff.ExponentialBackOff) error {
	defer queue.Close()
	topic, err := r.cfg.OpenTopic()
	if err != nil {
		return &Failure{Class: Broker, Err: fmt.Errorf("opening the topic: %w", err)}
	}
	t := newTerm(r, queue, topic)
	defer t.close() // before the queue: nobody else publishes while this relay does
	r.metrics.active.Set(1)
	defer r.metrics.active.Set(0)
	r.log.Info("publishing the outbox")
	return t.run(ctx, wait)
}

func asFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Class: Database, Err: err}
}

// asBrokerFailure makes a failure of what a topic says. Where it says nothing else, its broker failed.
func asBrokerFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Class: Broker, Err: err}
}

// failed counts a failure, and says it once, and then now and again.
func (r *Relay) failed(f *Failure) {
	r.metrics.failures.WithLabelValues(string(f.Class)).Inc()
	if repeats := r.health.failed(f); repeats%20 == 0 {
		hint := f.Advice
		if hint == "" {
			hint = r.cfg.Hint(f)
		}
		r.log.Warn("messages wait in the outbox; nothing is lost", "class", string(f.Class), "error", f.Err, "hint", hint)
	}
}

// works says that messages get through again.
func (r *Relay) works() {
	if failures := r.health.works(); failures > 0 {
		r.log.Info("messages are published again", "failures", failures)
	}
}

// Healthy returns nil while messages get through, or while another relay sees to that. It
// fails while a message holds its order back, at once for a failure that somebody has to
// end, and for others when they last. A message that waits for its acknowledgement longer than the stall limit fails it, too.
func (r *Relay) Healthy() error { return r.health.err(r.cfg.StallLimit) }

// health is what Healthy tells.
type health struct {
	mu       sync.Mutex
	failure  *Failure // of now; nil when all is well
	repeats  int
	since    time.Time
	standing Standing
	waiting  Waiting
}

func (h *health) standby() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure, h.repeats, h.standing, h.waiting = nil, 0, Standing{}, Waiting{}
}

func (h *health) failed(f *Failure) (repeats int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		h.since = time.Now()
	}
	if h.failure == nil || h.failure.Class != f.Class {
		h.repeats = 0
	}
	h.failure = f
	h.repeats++
	return h.repeats - 1
}

func (h *health) works() (failures int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	failures, h.failure, h.repeats = h.repeats, nil, 0
	return failures
}

func (h *health) stands(s Standing, w Waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standing, h.waiting = s, w
}

func (h *health) err(stallLimit time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var problems []error
	if f := h.failure; f != nil && (f.Class.needsSomebody() || time.Since(h.since) >= stallLimit) {
		problems = append(problems, fmt.Errorf("messages wait for %s: %w", time.Since(h.since).Round(time.Second), f))
	}
	if w := h.waiting; w.Message != nil && time.Since(w.Since) >= stallLimit {
		problems = append(problems, fmt.Errorf("message %d of order %q, version %d, waits for its acknowledgement for %s; %s",
			w.Message.Seq, w.Message.OrderID, w.Message.Version, time.Since(w.Since).Round(time.Second), cmp.Or(w.Trouble, "it has not failed")))
	}
	if s := h.standing; s.Orders > 0 {
		problems = append(problems, fmt.Errorf("messages that cannot be published hold orders back: %d, such as order %q: %s (see: orderprojector outbox list)",
			s.Orders, s.Order, s.Detail))
	}
	return errors.Join(problems...)
}

func newBackoff(cfg Config) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = cfg.RetryBase, 2, cfg.RetryCap
	b.Reset()
	return b
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
