package kafkaio_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
)

func TestCommitIsRetried(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	faults := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: group, Err: kerr.UnknownServerError, Count: 5})
	h := newFakeHandler()
	start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 3)...)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 3)...)
	awaitCommitted(t, c, 0, 3)
	if faults.Hits() == 0 {
		t.Error("no commit failed, the test shows nothing")
	}
}

// The group forgets the member: partitions are lost, nothing is committed for
// them, and the member joins again.
func TestLostPartitionsComeBack(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, "a")
	h.awaitValues(t, 0, "a")
	stop := sampleCommitted(t, c, 0)
	before := len(h.assigned())
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: group, TopLevel: true, Err: kerr.UnknownMemberID, Count: 1})
	h.await(t, "both partitions assigned anew", func() bool { return len(h.assignments) >= before+2 })
	c.Produce(t, topic, 0, "b")
	c.Produce(t, topic, 1, "c")
	h.awaitValues(t, 0, "a", "b")
	h.awaitValues(t, 1, "c")
	awaitCommitted(t, c, 0, 2)
	stop()
	eventually(t, "healthy", func() bool { return r.Healthy() == nil && r.Status().Member.Joined })
}

func TestFetchErrorHealsWithoutBusyLoop(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, "a")
	h.awaitValues(t, 0, "a")
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	c.Produce(t, topic, 0, "b")
	eventually(t, "the error in the status", func() bool { return strings.Contains(r.partition(0).LastError, "AUTHORIZATION") })
	c.Produce(t, topic, 1, "c")
	h.awaitValues(t, 1, "c")
	hits := fault.Hits()
	fault.Remove()
	h.awaitValues(t, 0, "a", "b")
	if hits > 50 {
		t.Errorf("%d fetches failed: a busy loop", hits)
	}
}

func TestFollowsLeaders(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.NumBrokers(3), kfake.SeedTopics(3, topic))
	h := newFakeHandler()
	start(t, clientConfig(c), fast(), h)
	var want []string
	for i := range 5 {
		c.Produce(t, topic, 0, fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
		h.awaitValues(t, 0, want...)
		c.ShufflePartitionLeaders()
		c.RehashCoordinators()
	}
	awaitCommitted(t, c, 0, 5)
}

func TestPositionBeyondTheEnd(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 3)...)
	h := newFakeHandler()
	tp := projection.TopicPartition{Topic: topic, TopicID: c.TopicInfo(topic).TopicID}
	h.watermarks[watermarkKey(tp)] = 50
	r := start(t, clientConfig(c), fast(), h)
	eventually(t, "halted", func() bool {
		return strings.Contains(r.partition(0).HaltedReason, "position 50 is beyond the end of the log (3)")
	})
	if r.partition(0).HaltedHint == "" {
		t.Error("no hint")
	}
	c.Produce(t, topic, 1, "a")
	h.awaitValues(t, 1, "a")
}

// A member reads again below its watermark in a log that ends below it: new
// records would take the offsets of records that are projected, and pass for them.
func TestALogShorterThanTheWatermarkHaltsWhileReadingAgain(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 3)...)
	c.SetCommitted(t, group, topic, 0, 1)
	h := newFakeHandler()
	h.watermarks[watermarkKey(projection.TopicPartition{Topic: topic, TopicID: c.TopicInfo(topic).TopicID})] = 50
	var handled atomic.Int64
	h.onHandle = func(_ context.Context, records []projection.Record) error {
		handled.Add(int64(len(records)))
		return nil
	}
	r := start(t, clientConfig(c), fast(), h)
	eventually(t, "halted, or read", func() bool { return r.partition(0).HaltedReason != "" || handled.Load() > 0 })
	if reason := r.partition(0).HaltedReason; !strings.Contains(reason, "position 50 is beyond the end of the log (3)") {
		t.Errorf("halted because of %q, %d records were handled", reason, handled.Load())
	}
}

func TestShutdownWithoutBroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	h := newFakeHandler()
	cfg := fast()
	cfg.StallLimit = 300 * time.Millisecond
	cfg.ShutdownGrace = time.Second
	r := start(t, clientConfig(c), cfg, h)
	c.Produce(t, topic, 0, "a")
	h.awaitValues(t, 0, "a")
	c.Close()
	eventually(t, "unhealthy", func() bool { return r.Healthy() != nil })
	began := time.Now()
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > cfg.ShutdownGrace+500*time.Millisecond {
		t.Errorf("stopping took %s", took)
	}
}

// A member that stops at any moment, such as amid a rebalance, stops in time
// and leaves the group.
func TestStopAtAnyMoment(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(4, topic))
	h := newFakeHandler()
	a := start(t, clientConfig(c), fast(), h)
	for p := range int32(4) {
		c.Produce(t, topic, p, "a")
	}
	for i := range 12 {
		b := start(t, clientConfig(c), fast(), h)
		select {
		case <-time.After(time.Duration(i*i) * 4 * time.Millisecond):
		case <-b.done:
		}
		began := time.Now()
		if err := b.stop(t); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("stopping took %s", took)
		}
	}
	eventually(t, "the other member has everything", func() bool {
		return len(a.Status().Partitions) == 4 && c.Members(t, group) == 1
	})
	for p := range int32(4) {
		c.Produce(t, topic, p, "b")
		h.awaitValues(t, p, "a", "b")
	}
}

func TestStaticMemberOfConsumerProtocol(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic), kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}))
	h := newFakeHandler()
	cfg := fast()
	cfg.GroupProtocol, cfg.InstanceID = kafkaio.ConsumerProtocol, "pod-1"
	var want []string
	for i := range 3 {
		r := start(t, clientConfig(c), cfg, h)
		c.Produce(t, topic, 0, fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
		h.awaitValues(t, 0, want...)
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		awaitCommitted(t, c, 0, int64(i+1))
	}
}

// countingLog counts the lines with one message.
type countingLog struct {
	slog.Handler
	message string
	count   *atomic.Int64
}

func (l countingLog) Enabled(context.Context, slog.Level) bool { return true }
func (l countingLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l countingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		l.count.Add(1)
	}
	return nil
}

// With the consumer protocol the client asks for offsets without a pause when
// the broker goes away at the wrong moment.
func TestNoBusyLoopWithoutBroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	cfg := fast()
	cfg.GroupProtocol, cfg.ShutdownGrace = kafkaio.ConsumerProtocol, time.Second
	c.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		go c.Close()
		return nil, fmt.Errorf("the broker goes away"), true
	})
	var failures atomic.Int64
	logger := slog.New(countingLog{slog.DiscardHandler, "fetch offsets failed with non-retryable error", &failures})
	consumer, err := kafkaio.NewConsumer(clientConfig(c), cfg, newFakeHandler(), logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	eventually(t, "a failure", func() bool { return failures.Load() > 0 })
	<-time.After(2 * time.Second)
	if n := failures.Load(); n > 20 {
		t.Errorf("%d requests for offsets failed within two seconds", n)
	}
	cancel()
	began := time.Now()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > cfg.ShutdownGrace+500*time.Millisecond {
		t.Errorf("stopping took %s", took)
	}
}

// Records are never handled by a handler whose partition was assigned anew,
// and every handler is closed.
func TestHandlersAreClosed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(3, topic))
	h := newFakeHandler()
	var failures atomic.Int32
	h.onHandle = func(context.Context, []projection.Record) error {
		if failures.Add(1) <= 2 {
			return fmt.Errorf("not yet")
		}
		return nil
	}
	r := start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 4)...)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 4)...)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != len(h.assignments) || len(h.assignments) < 5 {
		t.Errorf("%d handlers assigned, %d closed", len(h.assignments), h.closed)
	}
}

// A topic that compresses very well does not fill the memory.
func TestCompressionDoesNotDefeatTheBuffer(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	p, err := kafkaio.NewProducer(clientConfig(c), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const n = 40_000
	value := []byte(strings.Repeat("v", 1000))
	for range n {
		p.Produce(context.Background(), kafkaio.Message{Topic: topic, Value: value}, nil)
	}
	if err := p.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	h := newFakeHandler()
	release := make(chan struct{})
	var handled atomic.Int64
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		if handled.Add(int64(len(records))) > n/2 {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	cfg := fast()
	cfg.MaxBufferedBytes = 2 << 20
	start(t, clientConfig(c), cfg, h)
	h.await(t, "half of the records", func() bool { return len(h.records[0]) > n/4 })
	close(release)
	h.await(t, "all records", func() bool { return len(h.records[0]) == n })
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.IsSortedFunc(h.records[0], func(a, b projection.Record) int { return int(a.Offset - b.Offset) }) {
		t.Error("out of order")
	}
}
