package kafkaio_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

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
