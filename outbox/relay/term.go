package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// busyLook is how long a new message waits for its discovery while others are in flight.
	busyLook = 20 * time.Millisecond
	// settleTimeout bounds what is recorded after the end of the relay's context.
	settleTimeout = 3 * time.Second
	removeBatch   = 2048
	// While messages are acknowledged one after another, they are removed together: up
	// to so many, or what came within so long.
	removeAtOnce = 512
	removeWait   = 2 * time.Millisecond
)

// term is the time for which a relay has its queue. One goroutine runs it and uses the
// queue; the topic's goroutines report to done. What is in memory ends with the term.
type term struct {
	relay   *Relay
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	queue   Queue
	topic   Topic
	scan    scan
	revisit []string // orders that have messages, to be loaded first
	// perOrder is how many messages an order has, lately.
	perOrder float64
	lookAt   time.Time // when to read what is blocked: also the sign of life

	prepared  bool // the topic is believed to take records
	prepareAt time.Time

	signal chan struct{} // something was acknowledged, or failed

	mu       sync.Mutex
	lanes    lanes
	heard    time.Time // when the newest question began that the queue answered
	failure  *Failure  // of the topic, not yet dealt with
	progress bool      // something was acknowledged since the last failure
	stopping bool
	closed   bool
}

func newTerm(r *Relay, queue Queue, topic Topic) *term {
	return &term{
		relay: r, cfg: r.cfg, log: r.log, metrics: r.metrics, queue: queue, topic: topic,
		signal:   make(chan struct{}, 1),
		perOrder: 1,
		lanes:    lanes{byOrder: map[string]*lane{}},
	}
}

// run works until ctx ends (nil) or the queue is lost.
func (t *term) run(ctx context.Context, wait *backoff.ExponentialBackOff) error {
	// A question that is broken off costs the session. Each is short, so those under way end.
	whole := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		worked, err := t.step(ctx, whole, wait)
		if err == nil && !worked {
			err = t.rest(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return t.finish(ctx)
}

// step does what there is to do without waiting for the topic. Questions to the queue are asked with whole.
func (t *term) step(ctx, whole context.Context, wait *backoff.ExponentialBackOff) (worked bool, err error) {
	settled, err := t.settle(whole)
	if err != nil {
		return false, err
	}
	if err := t.look(whole); err != nil {
		return false, err
	}
	if !t.topicReady(ctx, wait) {
		return settled, nil
	}
	found, err := t.discover(whole)
	if err != nil {
		return false, err
	}
	sent := t.sendReady()
	return settled || found || sent, nil
}

// ask asks the queue. Its answer renews the lease.
func (t *term) ask(question func() error) error {
	began := time.Now()
	err := question()
	if err == nil {
		t.mu.Lock()
		t.heard = began
		t.mu.Unlock()
	}
	return err
}

// settle removes what was acknowledged and records what was refused.
func (t *term) settle(ctx context.Context) (any bool, err error) {
	t.mu.Lock()
	acked, refused := t.lanes.takeAcked(time.Now()), t.lanes.refused
	t.lanes.refused = nil
	t.metrics.inFlight.Set(float64(t.lanes.inFlight))
	t.mu.Unlock()
	for len(acked) > 0 {
		batch := acked[:min(removeBatch, len(acked))]
		acked = acked[len(batch):]
		seqs := make([]int64, len(batch))
		for i, m := range batch {
			seqs[i] = m.Seq
		}
		var left []int64
		if err := t.ask(func() (err error) { left, err = t.queue.Remove(ctx, seqs); return err }); err != nil {
			return false, err
		}
		t.mu.Lock()
		batch = t.lanes.keep(batch, left)
		t.revisit = append(t.revisit, t.lanes.removed(batch)...)
		t.mu.Unlock()
		any = any || len(batch) > 0
	}
	if len(refused) == 0 {
		return any, nil
	}
	if err := t.ask(func() error { return t.queue.Block(ctx, refused) }); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range refused {
		t.lanes.forget(b.Message.OrderID)
		t.metrics.refused.WithLabelValues(string(b.Reason)).Inc()
		t.log.Error("a message cannot be published: it holds its order back", "seq", b.Message.Seq, "order_id", b.Message.OrderID,
			"event_id", b.Message.EventID, "version", b.Message.Version, "reason", string(b.Reason), "detail", b.Detail,
			"hint", "remove the cause and run: orderprojector outbox retry; or give it up with: orderprojector outbox discard")
	}
	t.lookAt = time.Time{}
	return true, nil
}

// look reads what is blocked, now and again. It is also the sign of life that keeps the
// queue while there is nothing else to ask.
func (t *term) look(ctx context.Context) error {
	if time.Now().Before(t.lookAt) {
		return nil
	}
	var standing Standing
	err := t.ask(func() (err error) { standing, err = t.queue.Standing(ctx); return err })
	if err != nil {
		return err
	}
	t.lookAt = time.Now().Add(t.lookInterval())
	t.relay.health.stands(standing)
	t.metrics.blocked.Set(float64(standing.Orders))
	return nil
}

func (t *term) lookInterval() time.Duration { return min(time.Second, t.cfg.Lease/4) }

// topicReady reports whether the topic takes records, and asks it anew after a failure and a pause.
func (t *term) topicReady(ctx context.Context, wait *backoff.ExponentialBackOff) bool {
	t.mu.Lock()
	failure, progress := t.failure, t.progress
	t.failure, t.progress = nil, false
	t.mu.Unlock()
	if progress {
		wait.Reset()
		if failure == nil && t.prepared {
			t.relay.works()
		}
	}
	if failure != nil {
		t.relay.failed(failure)
		t.prepared, t.prepareAt = false, time.Now().Add(wait.NextBackOff())
	}
	if t.prepared {
		return true
	}
	if time.Now().Before(t.prepareAt) {
		return false
	}
	if err := t.topic.Prepare(ctx); err != nil {
		if ctx.Err() == nil {
			var f *Failure
			if !errors.As(err, &f) {
				f = &Failure{Class: Broker, Err: err}
			}
			t.relay.failed(f)
			t.prepareAt = time.Now().Add(wait.NextBackOff())
		}
		return false
	}
	t.prepared = true
	t.mu.Lock()
	idle := len(t.lanes.byOrder) == 0
	t.mu.Unlock()
	if idle { // nothing has to get through first
		t.relay.works()
	}
	return true
}

// sendReady sends the next message of each lane that has none in flight and is due.
func (t *term) sendReady() (any bool) {
	t.mu.Lock()
	if !t.leased() {
		t.mu.Unlock()
		return false
	}
	due := t.lanes.takeReady(time.Now())
	messages := make([]*Message, len(due))
	for i, l := range due {
		messages[i] = t.lanes.start(l)
	}
	t.mu.Unlock()
	for i, l := range due {
		t.send(l, messages[i])
	}
	return len(due) > 0
}

// leased reports, under the lock, whether messages may be sent.
func (t *term) leased() bool {
	return !t.closed && !t.stopping && time.Since(t.heard) < t.cfg.Lease
}

func (t *term) send(l *lane, m *Message) {
	record, err := t.cfg.Encoder.Encode(m)
	if err != nil {
		t.done(l, m, err)
		return
	}
	t.topic.Publish(record, func(err error) { t.done(l, m, err) })
}

// done takes note of what became of a lane's message, and sends the one behind it.
func (t *term) done(l *lane, m *Message, err error) {
	var refusal *Refusal
	var next *Message
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.lanes.ended(l)
	switch {
	case err == nil:
		t.progress = true
		t.lanes.acknowledged(l)
		if len(l.waiting) > 0 && t.leased() {
			next = t.lanes.start(l)
		} else if len(l.waiting) > 0 {
			t.lanes.ready = append(t.lanes.ready, l)
		}
	case errors.As(err, &refusal):
		t.lanes.refused = append(t.lanes.refused, Blocked{Message: m, Reason: refusal.Reason, Detail: refusal.Err.Error()})
	default:
		f := asFailure(err)
		if f.Class == Database { // it said nothing of itself
			f = &Failure{Class: Broker, Err: err}
		}
		t.failure = f
		l.retryAt = time.Now().Add(min(t.cfg.RetryCap, t.cfg.RetryBase<<min(l.failures, 16)))
		l.failures++
		t.lanes.ready = append(t.lanes.ready, l)
	}
	t.mu.Unlock()
	if err == nil {
		t.metrics.published.Inc()
		t.metrics.delay.Observe(time.Since(m.CreatedAt).Seconds())
	}
	select {
	case t.signal <- struct{}{}:
	default:
	}
	if next != nil {
		t.send(l, next)
	}
}

// rest waits until there is something to do.
func (t *term) rest(ctx context.Context) error {
	t.mu.Lock()
	busy := t.lanes.inFlight > 0 || len(t.lanes.ready) > 0
	t.mu.Unlock()
	if busy || !t.prepared {
		timer := time.NewTimer(busyLook)
		defer timer.Stop()
		select {
		case <-t.signal:
			t.gather(ctx)
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	}
	var notified bool
	atMost := min(time.Until(t.scan.sweepAt), time.Until(t.lookAt))
	err := t.ask(func() (err error) { notified, err = t.queue.Await(ctx, max(atMost, time.Millisecond)); return err })
	t.scan.wake(notified)
	return err
}

// gather waits a little for more of what is in flight.
func (t *term) gather(ctx context.Context) {
	timer := time.NewTimer(removeWait)
	defer timer.Stop()
	for {
		t.mu.Lock()
		enough := len(t.lanes.acked) >= removeAtOnce || t.lanes.inFlight == 0
		t.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-t.signal:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// finish lets what is in flight end, within the grace, and removes what was acknowledged.
func (t *term) finish(ctx context.Context) error {
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()
	grace := time.NewTimer(t.cfg.StopGrace)
	defer grace.Stop()
	for waiting := true; waiting; {
		t.mu.Lock()
		waiting = t.lanes.inFlight > 0
		t.mu.Unlock()
		if !waiting {
			break
		}
		select {
		case <-t.signal:
		case <-grace.C:
			waiting = false
		}
	}
	settleCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if _, err := t.settle(settleCtx); err != nil {
		t.log.Warn("messages that were published are published again by the next relay", "error", err)
	}
	return nil
}

// close gives up what is in flight: whoever has the queue next publishes it again.
func (t *term) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.topic.Close()
	t.metrics.inFlight.Set(0)
}
