package kafkaio_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
)

// fakeGate is a gate that a test opens and closes.
type fakeGate struct {
	mu      sync.Mutex
	why     error
	changed chan struct{}
}

func newGate(why error) *fakeGate { return &fakeGate{why: why, changed: make(chan struct{})} }

func (g *fakeGate) Closed() (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed, g.why
}

func (g *fakeGate) set(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = why
	close(g.changed)
	g.changed = make(chan struct{})
}

var errMaintenance = errors.New("paused by ann: maintenance")

func TestAClosedGateHoldsRecordsBackAndNothingElse(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, "0", "1")
	h := newFakeHandler()
	checks := make(chan struct{}, 1)
	h.onCheck = func(context.Context, projection.TopicPartition) error {
		select {
		case checks <- struct{}{}:
		default:
		}
		return nil
	}
	gate := newGate(errMaintenance)
	cfg := fast()
	cfg.Gate = gate
	cfg.StallLimit = 10 * time.Millisecond
	r := start(t, clientConfig(c), cfg, h)

	<-checks // assigned, and idle checks go on
	eventually(t, "lag while paused", func() bool { return r.partition(0).Lag == 2 })
	eventually(t, "the pause as the only complaint", func() bool {
		err := r.Healthy()
		return err != nil && err.Error() == errMaintenance.Error()
	})
	if got := h.values(0); len(got) > 0 {
		t.Errorf("applied behind a closed gate: %v", got)
	}
	gate.set(nil)
	h.awaitValues(t, 0, "0", "1")

	gate.set(errMaintenance)
	<-checks // the worker has seen it: it is idle
	<-checks
	c.Produce(t, topic, 0, "2")
	eventually(t, "lag while paused again", func() bool { return r.partition(0).Lag == 1 })
	eventually(t, "the commit of what was applied before", func() bool { return c.Committed(t, group, topic, 0) == 2 })
	if n := c.Members(t, group); n != 1 {
		t.Errorf("%d members", n)
	}
	gate.set(nil)
	h.awaitValues(t, 0, "0", "1", "2")
	eventually(t, "health", func() bool { return r.Healthy() == nil })
}

// A batch in flight finishes when the gate closes; the next one waits.
func TestABatchInFlightFinishesWhenTheGateCloses(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	h := newFakeHandler()
	entered, leave := make(chan struct{}), make(chan struct{})
	h.onHandle = func(context.Context, []projection.Record) error {
		select {
		case entered <- struct{}{}:
			<-leave
		case <-leave:
		}
		return nil
	}
	gate := newGate(nil)
	cfg := fast()
	cfg.Gate, cfg.MaxBatchRecords = gate, 1
	r := start(t, clientConfig(c), cfg, h)
	c.Produce(t, topic, 0, "0", "1")
	<-entered
	gate.set(errMaintenance)
	close(leave)
	h.awaitValues(t, 0, "0")
	eventually(t, "lag of one", func() bool { return r.partition(0).Lag == 1 })
	if got := strings.Join(h.values(0), " "); got != "0" {
		t.Errorf("applied: %s", got)
	}
	gate.set(nil)
	h.awaitValues(t, 0, "0", "1")
}

// How old the oldest waiting record is must be known while nothing is fetched: neither the
// time since the last record was applied nor the time since the pause tells.
func TestTheAgeOfWhatWaitsIsTrueWhilePaused(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	old := func(partition int32, age time.Duration) {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("v"), Timestamp: time.Now().Add(-age)}
		if err := c.Client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	h := newFakeHandler()
	gate := newGate(nil)
	cfg := fast()
	cfg.Gate = gate
	checks := make(chan struct{}, 1)
	h.onCheck = func(context.Context, projection.TopicPartition) error { signal(checks); return nil }
	r := start(t, clientConfig(c), cfg, h)
	old(0, 2*time.Hour)
	h.awaitValues(t, 0, "v")
	gate.set(errMaintenance)
	for range 3 { // one may be from before; then the workers have seen the gate
		<-checks
	}
	old(0, 13*time.Second)
	old(1, 3*time.Hour)
	is := func(partition int32, want time.Duration) {
		t.Helper()
		eventually(t, "lag", func() bool { return r.partition(partition).Lag == 1 })
		p := r.partition(partition)
		if !p.LagTimeKnown || p.LagTime < want || p.LagTime > want+patience {
			t.Errorf("partition %d: the record that waits is %s old, not %s (known: %v)", partition, p.LagTime, want, p.LagTimeKnown)
		}
	}
	is(0, 13*time.Second)
	is(1, 3*time.Hour)
	if err := r.stop(t); err != nil {
		t.Error(err)
	}

	// A member that finds the group paused knows it, too.
	r = start(t, clientConfig(c), cfg, h)
	eventually(t, "the age is known", func() bool { return r.partition(1).LagTimeKnown })
	is(0, 13*time.Second)
	is(1, 3*time.Hour)
	gate.set(nil)
	h.awaitValues(t, 1, "v")
	eventually(t, "no lag", func() bool { return r.partition(1).LagTime == 0 && r.partition(0).LagTime == 0 })
}

// What waits behind an open transaction is lag, and yet nothing is left to do.
func TestAnOpenTransactionIsTold(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	h := newFakeHandler()
	cfg := fast()
	cfg.StallLimit = 400 * time.Millisecond
	r := start(t, clientConfig(c), cfg, h)
	c.Produce(t, topic, 0, "a")
	open := c.Begin(t, "tx", topic, 0, "b")
	c.Produce(t, topic, 0, "c", "d")
	h.awaitValues(t, 0, "a")
	eventually(t, "an unhealthy partition", func() bool {
		err := r.Healthy()
		return err != nil && strings.Contains(err.Error(), "3 offsets wait behind a transaction that begins at offset 1")
	})
	p := r.partition(0)
	if p.Lag != 3 || !p.Drained || p.BehindTransaction != 3 || p.TransactionOffset != 1 || p.EndOffset != 1 || p.HighWatermark != 4 || p.LagTime == 0 {
		t.Errorf("%+v", p)
	}
	if n := r.metric(t, "orderprojector_consumer_open_transaction_offsets"); n != 3 {
		t.Errorf("consumer_open_transaction_offsets = %v", n)
	}
	if s := r.metric(t, "orderprojector_consumer_open_transaction_seconds"); s < cfg.StallLimit.Seconds() {
		t.Errorf("consumer_open_transaction_seconds = %v", s)
	}
	open.End(t, kgo.TryCommit)
	h.awaitValues(t, 0, "a", "b", "c", "d")
	eventually(t, "health, and no lag", func() bool {
		p := r.partition(0)
		return r.Healthy() == nil && p.Lag == 0 && p.BehindTransaction == 0
	})
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Partitions change hands while the group is paused, without waiting for it.
func TestPartitionsMoveWhileTheGateIsClosed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	h := newFakeHandler()
	gate := newGate(errMaintenance)
	cfg := fast()
	cfg.Gate = gate
	first := start(t, clientConfig(c), cfg, h)
	eventually(t, "both partitions", func() bool { return len(first.Status().Partitions) == 2 })
	second := start(t, clientConfig(c), cfg, h)
	eventually(t, "one partition each", func() bool {
		return len(first.Status().Partitions) == 1 && len(second.Status().Partitions) == 1
	})
	if err := first.stop(t); err != nil {
		t.Error(err)
	}
	eventually(t, "both partitions again", func() bool { return len(second.Status().Partitions) == 2 })
	c.Produce(t, topic, 0, "a")
	c.Produce(t, topic, 1, "b")
	gate.set(nil)
	h.awaitValues(t, 0, "a")
	h.awaitValues(t, 1, "b")
}
