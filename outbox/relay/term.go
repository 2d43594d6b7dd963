package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/orderprojector/orderprojector/projection/portion"
)

const (
	// busyLook is how long a new message waits for its discovery while others are in flight.
	busyLook = 20 * time.Millisecond
	// settleTimeout bounds what is recorded after the end of the relay's context.
	settleTimeout = 3 * time.Second
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

	limitAt  time.Time      // when to ask for the size that the topic takes
	limiting sync.WaitGroup // asks for it

	signal chan struct{} // something was acknowledged, or failed

	mu          sync.Mutex
	lanes       lanes
	heard       time.Time // when the newest question began that the queue answered
	failure     *Failure  // of the topic, not yet dealt with
	failedAside *Failure  // the same of suspects: the others need not wait for it
	progress    bool      // something was acknowledged since the last failure
	limit       int64     // the size that the topic takes, not yet dealt with; 0 for none
	stopping    bool
	closed      bool
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
	t.askLimit(ctx)
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
	if err == nil || errors.Is(err, ErrTooSlow) {
		t.mu.Lock()
		t.heard = began
		t.mu.Unlock()
	}
	return err
}

// askLimit asks for the size that the topic takes, now and again, without waiting for the answer.
func (t *term) askLimit(ctx context.Context) {
	if time.Now().Before(t.limitAt) {
		return
	}
	t.limitAt = time.Now().Add(t.cfg.LimitInterval)
	t.limiting.Go(func() {
		limit, err := t.topic.MaxRecordBytes(ctx)
		if err != nil {
			t.log.Debug("the size that the topic takes is not known", "error", err)
			return
		}
		t.mu.Lock()
		t.limit = limit
		t.mu.Unlock()
	})
}

// release has messages tried again that the topic takes now.
func (t *term) release(ctx context.Context) error {
	t.mu.Lock()
	limit := t.limit
	t.limit = 0
	t.mu.Unlock()
	for released := 1; limit > 0 && released > 0; {
		if err := t.ask(func() (err error) { released, err = t.queue.Release(ctx, limit); return err }); err != nil {
			return err
		}
		if released > 0 {
			t.log.Info("messages that were too large are tried again: the topic takes them now", "messages", released, "max_message_bytes", limit)
			t.scan.wake(true)
		}
	}
	return nil
}

// settle removes what was acknowledged and records what was refused.
func (t *term) settle(ctx context.Context) (any bool, err error) {
	t.mu.Lock()
	acked, refused := t.lanes.takeAcked(time.Now()), t.lanes.refused
	t.lanes.refused = nil
	t.metrics.inFlight.Set(float64(t.lanes.inFlight))
	t.mu.Unlock()
	for len(acked) > 0 {
		batch := within(t.relay.portion.Size(), acked)
		seqs := make([]int64, len(batch))
		for i, m := range batch {
			seqs[i] = m.Seq
		}
		var left []int64
		answered, err := t.portioned(func() (err error) { left, err = t.queue.Remove(ctx, seqs); return err })
		if err != nil {
			return false, err
		}
		t.mu.Lock()
		if !answered {
			t.lanes.acked = append(acked, t.lanes.acked...)
			t.mu.Unlock()
			return true, nil
		}
		acked = acked[len(batch):]
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

// within returns as many of the first messages as a portion holds, at least one.
func within(size portion.Size, messages []*Message) []*Message {
	for n, m := range messages {
		if size.Bytes -= m.bytes(); n > 0 && (n == size.Rows || size.Bytes < 0) {
			return messages[:n]
		}
	}
	return messages
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
	t.mu.Lock()
	waiting, suspects := t.lanes.oldest()
	t.mu.Unlock()
	t.relay.health.stands(standing, waiting)
	t.metrics.blocked.Set(float64(standing.Orders))
	t.metrics.suspects.Set(float64(suspects))
	t.metrics.unacked.Set(0)
	if waiting.Message != nil {
		t.metrics.unacked.Set(time.Since(waiting.Since).Seconds())
	}
	return t.release(ctx)
}

func (t *term) lookInterval() time.Duration { return min(time.Second, t.cfg.Lease/4) }

// topicReady reports whether the topic takes records, and asks it anew after a failure and a pause.
func (t *term) topicReady(ctx context.Context, wait *backoff.ExponentialBackOff) bool {
	t.mu.Lock()
	failure, aside, progress := t.failure, t.failedAside, t.progress
	t.failure, t.failedAside, t.progress = nil, nil, false
	idle := len(t.lanes.byOrder) == 0
	t.mu.Unlock()
	if progress {
		wait.Reset()
	}
	if failure == nil && t.prepared && (progress || idle) {
		t.relay.works()
	}
	switch {
	case failure != nil:
		t.relay.failed(failure)
		t.prepared, t.prepareAt = false, time.Now().Add(wait.NextBackOff())
	case aside != nil && !progress:
		t.relay.failed(aside)
	}
	if t.prepared {
		return true
	}
	if time.Now().Before(t.prepareAt) {
		return false
	}
	if err := t.topic.Prepare(ctx); err != nil {
		if ctx.Err() == nil {
			t.relay.failed(asBrokerFailure(err))
			t.prepareAt = time.Now().Add(wait.NextBackOff())
		}
		return false
	}
	t.prepared = true
	if idle { // nothing has to get through first
		t.relay.works()
	}
	return true
}

// sendReady sends the next message of each lane that has none in flight and is due, those of suspects in groups.
func (t *term) sendReady() (any bool) {
	t.mu.Lock()
	if !t.leased() {
		t.mu.Unlock()
		return false
	}
	now := time.Now()
	due := t.lanes.takeReady(now)
	messages := t.startAll(due)
	var groups [][]*lane
	var grouped [][]*Message
	for group := t.lanes.takeGroup(now); group != nil; group = t.lanes.takeGroup(now) {
		groups, grouped = append(groups, group), append(grouped, t.startAll(group))
	}
	t.mu.Unlock()
	for i, l := range due {
		t.send(l, messages[i])
	}
	for i, group := range groups {
		t.sendGroup(group, grouped[i])
	}
	return len(due)+len(groups) > 0
}

func (t *term) startAll(due []*lane) []*Message {
	messages := make([]*Message, len(due))
	for i, l := range due {
		messages[i] = t.lanes.start(l)
	}
	return messages
}

// leased reports, under the lock, whether messages may be sent.
func (t *term) leased() bool {
	return !t.closed && !t.stopping && time.Since(t.heard) < t.cfg.Lease
}

func (t *term) send(l *lane, m *Message) {
	record, err := t.cfg.Encoder.Encode(m)
	if err != nil {
		t.mu.Lock()
		t.lanes.ended(l)
		t.refuse(m, err)
		t.mu.Unlock()
		t.wake()
		return
	}
	t.topic.Publish(record, func(err error) { t.done(l, m, err) })
}

// done takes note of what became of a lane's message, and sends the one behind it.
func (t *term) done(l *lane, m *Message, err error) {
	var next *Message
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.lanes.ended(l)
	switch {
	case err != nil:
		t.failed(l, err)
	case t.acknowledged(l, m) && t.leased():
		next = t.lanes.start(l)
	default:
		t.lanes.enqueue(l)
	}
	t.mu.Unlock()
	t.wake()
	if next != nil {
		t.send(l, next)
	}
}

// acknowledged takes note of an acknowledgement, and reports whether the lane's next message can follow. The caller holds the lock.
func (t *term) acknowledged(l *lane, m *Message) (next bool) {
	t.progress = true
	t.lanes.acknowledged(l)
	t.metrics.published.Inc()
	t.metrics.delay.Observe(time.Since(m.CreatedAt).Seconds())
	return len(l.waiting) > 0 && l.group == 0
}

// failed takes note that a lane's message failed among others. The caller holds the lock.
func (t *term) failed(l *lane, err error) {
	var refusal *Refusal
	l.trouble = err.Error()
	if !errors.As(err, &refusal) {
		t.failure = asBrokerFailure(err)
	}
	if refusal != nil || t.failure.Class == Broker {
		t.lanes.suspect(l)
	} else {
		t.pause(l)
	}
	t.lanes.ready = append(t.lanes.ready, l)
}

// pause lets a lane wait before its message is tried again. The caller holds the lock.
func (t *term) pause(l *lane) {
	l.retryAt = time.Now().Add(min(t.cfg.RetryCap, t.cfg.RetryBase<<min(l.failures, 16)))
	l.failures++
}

// refuse has a message blocked. The caller holds the lock.
func (t *term) refuse(m *Message, err error) {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		refusal = &Refusal{Reason: Invalid, Err: err}
	}
	t.lanes.refused = append(t.lanes.refused, Blocked{Message: m, Reason: refusal.Reason, Detail: refusal.Err.Error()})
}

// wake has the term look at what happened.
func (t *term) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// rest waits until there is something to do.
func (t *term) rest(ctx context.Context) error {
	t.mu.Lock()
	due := t.lanes.nextDue()
	busy := t.lanes.inFlight > 0 || time.Until(due) < busyLook
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
	atMost := min(time.Until(t.scan.sweepAt), time.Until(t.lookAt), time.Until(due))
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
	t.limiting.Wait()
	t.metrics.inFlight.Set(0)
	t.metrics.suspects.Set(0)
	t.metrics.unacked.Set(0)
}
