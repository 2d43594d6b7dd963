package kafkaio_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
)

const (
	topic = "orders.events"
	group = "orderprojector"
)

func testLogger(t *testing.T) *slog.Logger {
	level := slog.LevelInfo
	if os.Getenv("KAFKAIO_TEST_DEBUG") != "" {
		level = slog.LevelDebug - 4
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

func clientConfig(c *kafkatest.Cluster) kafkaio.ClientConfig {
	return kafkaio.ClientConfig{SeedBrokers: c.ListenAddrs()}
}

// fast is a consumer configuration for tests.
func fast() kafkaio.ConsumerConfig {
	return kafkaio.ConsumerConfig{
		Group: group, Topic: topic,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 100 * time.Millisecond, RebalanceTimeout: 6 * time.Second,
		ShutdownGrace: 3 * time.Second, CommitInterval: 20 * time.Millisecond, CheckInterval: 20 * time.Millisecond,
		WatchInterval: 50 * time.Millisecond,
	}
}

// running is a consumer under test.
type running struct {
	*kafkaio.Consumer
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(t *testing.T, client kafkaio.ClientConfig, cfg kafkaio.ConsumerConfig, h projection.Handler) *running {
	t.Helper()
	r := &running{reg: prometheus.NewRegistry(), done: make(chan struct{})}
	consumer, err := kafkaio.NewConsumer(client, cfg, h, testLogger(t), r.reg)
	if err != nil {
		t.Fatal(err)
	}
	r.Consumer = consumer
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.err = consumer.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(patience):
			t.Error("the consumer does not stop")
		}
	})
	return r
}

// stop ends the consumer and returns what Run returned.
func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.cancel()
	return r.wait(t)
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		t.Fatal("the consumer does not stop")
		return nil
	}
}

func (r *running) partition(p int32) kafkaio.PartitionStatus {
	for _, ps := range r.Status().Partitions {
		if ps.Partition == p {
			return ps
		}
	}
	return kafkaio.PartitionStatus{Partition: -1}
}

func (r *running) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return -1
}

func awaitCommitted(t *testing.T, c *kafkatest.Cluster, partition int32, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("committed offset %d of partition %d", want, partition), func() bool {
		return c.Committed(t, group, topic, partition) == want
	})
}

func TestCommitsAfterHandle(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 10)...)
	h := newFakeHandler()
	release := make(chan struct{})
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		for i := range records {
			if records[i].Offset >= 5 {
				select {
				case <-release:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	}
	cfg := fast()
	cfg.MaxBatchRecords = 5
	r := start(t, clientConfig(c), cfg, h)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 5)...)
	awaitCommitted(t, c, 0, 5)
	h.await(t, "the second batch", func() bool { return h.handling == 1 })
	if got := c.Committed(t, group, topic, 0); got != 5 {
		t.Fatalf("committed %d while the batch from 5 on is being handled", got)
	}
	close(release)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 10)...)
	awaitCommitted(t, c, 0, 10)
	eventually(t, "lag 0", func() bool { return r.partition(0).Lag == 0 && r.partition(0).EndOffset == 10 })
	if err := r.Healthy(); err != nil {
		t.Errorf("unhealthy: %v", err)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if n := c.Members(t, group); n != 0 {
		t.Errorf("%d members are left in the group", n)
	}
}

func TestShutdownWhileHandleBlocks(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 10)...)
	h := newFakeHandler()
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		if records[0].Offset < 3 {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	cfg := fast()
	cfg.MaxBatchRecords = 3
	cfg.ShutdownGrace = time.Second
	r := start(t, clientConfig(c), cfg, h)
	h.await(t, "the blocked batch", func() bool { return len(h.records[0]) == 3 && h.handling == 1 })
	began := time.Now()
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > cfg.ShutdownGrace+500*time.Millisecond {
		t.Errorf("stopping took %s", took)
	}
	if got := c.Committed(t, group, topic, 0); got != 3 {
		t.Errorf("committed %d, of which only 3 were handled", got)
	}
	if n := c.Members(t, group); n != 0 {
		t.Errorf("%d members are left in the group", n)
	}

	h.onHandle = nil
	start(t, clientConfig(c), fast(), h)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 10)...)
	awaitCommitted(t, c, 0, 10)
}

func TestShutdownLetsBatchFinish(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 3)...)
	h := newFakeHandler()
	release := make(chan struct{})
	h.onHandle = func(ctx context.Context, _ []projection.Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := start(t, clientConfig(c), fast(), h)
	h.await(t, "a batch in flight", func() bool { return h.handling == 1 })
	r.cancel()
	close(release)
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	handled := int64(len(h.values(0)))
	if got := c.Committed(t, group, topic, 0); got != handled || handled == 0 {
		t.Errorf("committed %d of %d handled records", got, handled)
	}
}

// A handler that ignores its context must not keep the process from ending.
func TestShutdownLeavesDeafHandlerBehind(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, "0")
	h := newFakeHandler()
	release := make(chan struct{})
	h.onHandle = func(context.Context, []projection.Record) error { <-release; return nil }
	cfg := fast()
	cfg.ShutdownGrace = time.Second
	r := start(t, clientConfig(c), cfg, h)
	h.await(t, "a batch in flight", func() bool { return h.handling == 1 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	close(release)
	h.await(t, "the end of the batch", func() bool { return h.handling == 0 })
	if got := c.Committed(t, group, topic, 0); got > 0 {
		t.Errorf("committed %d although the batch was abandoned", got)
	}
}

// sampleCommitted checks until stopped that a partition's committed offset
// never moves backwards.
func sampleCommitted(t *testing.T, c *kafkatest.Cluster, partition int32) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		highest := int64(-1)
		for {
			offsets, err := c.Admin.FetchOffsets(context.Background(), group)
			if err == nil {
				if o, ok := offsets.Lookup(topic, partition); ok {
					if o.At < highest {
						t.Errorf("the committed offset of partition %d moved back from %d to %d", partition, highest, o.At)
					}
					highest = max(highest, o.At)
				}
			}
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

// The first member's batch outlives its ownership of the partition.
func TestLateExOwnerNeverRewinds(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 6)...)
	c.Produce(t, topic, 1, kafkatest.Numbered(0, 6)...)
	release := make(chan struct{})
	blocked := newFakeHandler()
	blocked.onHandle = func(context.Context, []projection.Record) error { <-release; return nil } // deaf
	cfg := fast()
	cfg.MaxBatchRecords = 1
	cfg.RebalanceTimeout = 1500 * time.Millisecond
	cfg.ShutdownGrace = time.Second
	defer sampleCommitted(t, c, 0)()
	defer sampleCommitted(t, c, 1)()
	a := start(t, clientConfig(c), cfg, blocked)
	blocked.await(t, "both partitions blocked", func() bool { return blocked.handling == 2 })

	h := newFakeHandler()
	start(t, clientConfig(c), cfg, h)
	h.await(t, "one partition at the second member", func() bool { return len(h.records[0])+len(h.records[1]) == 6 })
	moved := int32(0)
	if len(h.values(1)) == 6 {
		moved = 1
	}
	awaitCommitted(t, c, moved, 6)
	close(release)
	blocked.await(t, "the end of the late batches", func() bool { return len(blocked.records[1-moved]) == 6 })
	awaitCommitted(t, c, 1-moved, 6)
	if err := a.stop(t); err != nil {
		t.Fatal(err)
	}
	if got := c.Committed(t, group, topic, moved); got != 6 {
		t.Errorf("committed offset of the moved partition is %d", got)
	}
}

func TestBackPressureKeepsMembership(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	big := strings.Repeat("x", 10_000)
	for range 200 {
		c.Produce(t, topic, 0, big)
	}
	h := newFakeHandler()
	release := make(chan struct{})
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		if records[0].Partition == 1 {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var heartbeats atomic.Int64
	c.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		heartbeats.Add(1)
		return nil, nil, false
	})
	cfg := fast()
	cfg.MaxBatchRecords = 10
	cfg.MaxPartitionBytes = 100_000
	r := start(t, clientConfig(c), cfg, h)
	h.await(t, "the blocked batch", func() bool { return h.handling == 1 })
	before := heartbeats.Load()
	eventually(t, "heartbeats go on", func() bool { return heartbeats.Load() > before+15 })
	c.Produce(t, topic, 1, "a", "b")
	h.awaitValues(t, 1, "a", "b")
	if n := r.metric(t, "orderprojector_rebalances_total"); n != 1 {
		t.Errorf("%v assignments during the outage, want 1", n)
	}
	close(release)
	h.await(t, "all records", func() bool { return len(h.records[0]) == 200 })
	awaitCommitted(t, c, 0, 200)
}

func TestAssignBlocksOnlyItsPartition(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, "a")
	c.Produce(t, topic, 1, "b")
	h := newFakeHandler()
	release := make(chan struct{})
	h.onAssign = func(ctx context.Context, a projection.Assignment) error {
		if a.Partition != 0 {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	cfg := fast()
	cfg.StallLimit = 200 * time.Millisecond
	r := start(t, clientConfig(c), cfg, h)
	h.awaitValues(t, 1, "b")
	eventually(t, "unhealthy", func() bool { return r.Healthy() != nil })
	close(release)
	h.awaitValues(t, 0, "a")
	eventually(t, "healthy", func() bool { return r.Healthy() == nil })
}

func TestRewindFromHandle(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	h := newFakeHandler()
	var once sync.Once
	var reread []int64
	h.onHandle = func(_ context.Context, records []projection.Record) (err error) {
		last := records[len(records)-1]
		if string(last.Value) == "9" {
			once.Do(func() {
				h.update(func() { // the database lost what was above 4
					h.watermarks[watermarkKey(last.TopicPartition)] = 4
					h.records[0] = h.records[0][:4]
				})
				err = &projection.RewindError{To: 4, Reason: "watermark is 4"}
			})
		}
		if err == nil {
			for _, r := range records {
				reread = append(reread, r.Offset)
			}
		}
		return err
	}
	cfg := fast()
	cfg.MaxBatchRecords = 2
	r := start(t, clientConfig(c), cfg, h)
	stop := sampleCommitted(t, c, 0)
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 8)...)
	awaitCommitted(t, c, 0, 8)
	// What is fetched behind the failing record must not arrive after the seek.
	var batch []*kgo.Record
	for _, value := range kafkatest.Numbered(8, 40) {
		batch = append(batch, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	if err := c.Client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	h.awaitValues(t, 0, kafkatest.Numbered(0, 48)...)
	awaitCommitted(t, c, 0, 48)
	stop()
	if n := r.metric(t, "orderprojector_partition_restarts_total"); n != 1 {
		t.Errorf("partition_restarts_total = %v", n)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(reread); i++ {
		if reread[i] != reread[i-1]+1 && reread[i] != 4 {
			t.Fatalf("offsets are not in order after the seek: %v", reread)
		}
	}
}

func TestRewindFromCheck(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 5)...)
	h := newFakeHandler()
	lost := make(chan struct{})
	var once sync.Once
	h.onCheck = func(_ context.Context, tp projection.TopicPartition) (err error) {
		select {
		case <-lost:
			once.Do(func() {
				h.update(func() { h.watermarks[watermarkKey(tp)] = 2; h.records[0] = h.records[0][:2] })
				err = &projection.RewindError{To: 2, Reason: "watermark is 2"}
			})
		default:
		}
		return err
	}
	start(t, clientConfig(c), fast(), h)
	awaitCommitted(t, c, 0, 5)
	close(lost)
	h.await(t, "records lost", func() bool { return len(h.records[0]) < 5 })
	h.awaitValues(t, 0, kafkatest.Numbered(0, 5)...)
	if got := c.Committed(t, group, topic, 0); got != 5 {
		t.Errorf("committed %d", got)
	}
}

// The database lost commits, and the assignment takes its time: the position of
// before is not committed meanwhile.
func TestNothingIsCommittedOnceARewindIsKnown(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	faults := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: group, Err: kerr.UnknownServerError, Count: -1})
	h := newFakeHandler()
	lost, known, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var checked, assigned sync.Once
	h.onCheck = func(_ context.Context, tp projection.TopicPartition) (err error) {
		select {
		case <-lost:
			if tp.Partition == 0 {
				checked.Do(func() {
					h.update(func() { h.watermarks[watermarkKey(tp)] = 2; h.records[0] = h.records[0][:2] })
					err = &projection.RewindError{To: 2, Reason: "watermark is 2"}
				})
			}
		default:
		}
		return err
	}
	h.onAssign = func(ctx context.Context, a projection.Assignment) error {
		select {
		case <-lost:
		default:
			return nil
		}
		if a.Partition == 0 {
			assigned.Do(func() {
				close(known)
				select {
				case <-release:
				case <-ctx.Done():
				}
			})
		}
		return nil
	}
	start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 5)...)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 5)...)
	close(lost)
	<-known
	faults.Remove()
	c.Produce(t, topic, 1, "a", "b") // both partitions are committed together
	awaitCommitted(t, c, 1, 2)
	if at := c.Committed(t, group, topic, 0); at != -1 {
		t.Errorf("offset %d is committed, and the database is at 2", at)
	}
	close(release)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 5)...)
	awaitCommitted(t, c, 0, 5)
}

func TestHaltLeavesOthersRunning(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	h := newFakeHandler()
	h.onHandle = func(_ context.Context, records []projection.Record) error {
		if records[0].Partition == 0 {
			return &projection.HaltError{Reason: "out of order", Hint: "call somebody"}
		}
		return nil
	}
	r := start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, "a")
	c.Produce(t, topic, 1, "b")
	h.awaitValues(t, 1, "b")
	eventually(t, "halted", func() bool { return r.partition(0).HaltedReason == "out of order" })
	c.Produce(t, topic, 1, "c")
	h.awaitValues(t, 1, "b", "c")
	if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "out of order") || !strings.Contains(err.Error(), "call somebody") {
		t.Errorf("Healthy() = %v", err)
	}
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP orderprojector_partition_halted 1 while the partition is halted and needs an operator.
# TYPE orderprojector_partition_halted gauge
orderprojector_partition_halted{partition="0",topic="orders.events"} 1
orderprojector_partition_halted{partition="1",topic="orders.events"} 0
`), "orderprojector_partition_halted"); err != nil {
		t.Error(err)
	}
}

func TestDataLoss(t *testing.T) {
	t.Parallel()
	for _, policy := range []kafkaio.DataLossPolicy{kafkaio.HaltOnDataLoss, kafkaio.ExitOnDataLoss, kafkaio.ContinueOnDataLoss} {
		for _, when := range []string{"at assignment", "while running"} {
			t.Run(string(policy)+" "+when, func(t *testing.T) {
				t.Parallel()
				testDataLoss(t, policy, when == "while running")
			})
		}
	}
}

func testDataLoss(t *testing.T, policy kafkaio.DataLossPolicy, running bool) {
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	// Large enough that one fetch brings one record.
	large := func(first, n int) []string {
		values := kafkatest.Numbered(first, n)
		for i := range values {
			values[i] += strings.Repeat(" ", 700_000)
		}
		return values
	}
	c.Produce(t, topic, 0, large(0, 3)...)
	h := newFakeHandler()
	held, release := make(chan struct{}, 1), make(chan struct{})
	var hold atomic.Bool
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		if hold.Load() && records[0].Partition == 0 {
			select {
			case held <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	cfg := fast()
	cfg.OnDataLoss = policy
	cfg.MaxBatchRecords = 1
	cfg.MaxPartitionBytes = 1 // one fetch ahead
	r := start(t, clientConfig(c), cfg, h)
	awaitCommitted(t, c, 0, 3)
	if running {
		// The batch blocks, what is fetched ahead is little, and the rest is
		// removed before it is fetched.
		hold.Store(true)
		c.Produce(t, topic, 0, large(3, 1)...)
		<-held
		c.Produce(t, topic, 0, large(4, 16)...)
	} else {
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		c.Produce(t, topic, 0, large(3, 17)...)
	}
	if err := c.DeleteRecords(topic, 0, 18); err != nil {
		t.Fatal(err)
	}
	if running {
		hold.Store(false)
		close(release)
	} else {
		r = start(t, clientConfig(c), cfg, h)
	}
	var from int64
	switch policy {
	case kafkaio.HaltOnDataLoss:
		eventually(t, "halted", func() bool { return r.partition(0).HaltedReason != "" })
		from = r.partition(0).Position
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "no longer holds") {
			t.Errorf("Healthy() = %v", err)
		}
		c.Produce(t, topic, 1, "z")
		h.awaitValues(t, 1, "z")
		if got := c.Committed(t, group, topic, 0); got > from {
			t.Errorf("committed %d behind the gap from %d on", got, from)
		}
	case kafkaio.ExitOnDataLoss:
		if err := r.wait(t); !errors.Is(err, kafkaio.ErrDataLoss) {
			t.Fatalf("Run returned %v", err)
		}
		return
	case kafkaio.ContinueOnDataLoss:
		awaitCommitted(t, c, 0, 20)
		h.mu.Lock()
		skips := slices.Clone(h.skips)
		from = int64(len(h.records[0]) - 2)
		h.mu.Unlock()
		if !slices.Equal(skips, []int64{18}) {
			t.Errorf("skips: %v", skips)
		}
	}
	if !running && from != 3 {
		t.Errorf("the gap begins at %d", from)
	}
	if n := r.metric(t, "orderprojector_data_loss_total"); n != float64(18-from) || n == 0 {
		t.Errorf("data_loss_total = %v, want %d", n, 18-from)
	}
}

func TestTopicRecreated(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 5)...)
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	awaitCommitted(t, c, 0, 5)
	old := r.Status().TopicID
	var fetches atomic.Int64
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	if err := c.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "unhealthy without the topic", func() bool { return r.Healthy() != nil })
	if err := c.CreateTopic(topic, 2, nil); err != nil {
		t.Fatal(err)
	}
	c.Client.PurgeTopicsFromClient(topic)
	c.Produce(t, topic, 0, "n0", "n1", "n2")
	h.awaitValues(t, 0, append(kafkatest.Numbered(0, 5), "n0", "n1", "n2")...)
	awaitCommitted(t, c, 0, 3)
	if r.Status().TopicID == old {
		t.Error("the topic ID is the old one")
	}
	if n := fetches.Load(); n > 500 {
		t.Errorf("%d fetches: a busy loop", n)
	}
	eventually(t, "healthy again", func() bool { return r.Healthy() == nil })
}

// The topic is replaced so fast that it is never seen missing, and long before
// anybody looks: the fetches tell.
func TestTopicReplacedAtOnce(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 5)...)
	h := newFakeHandler()
	cfg := fast()
	cfg.WatchInterval = time.Hour
	start(t, clientConfig(c), cfg, h)
	awaitCommitted(t, c, 0, 5)
	if err := c.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	c.Client.PurgeTopicsFromClient(topic)
	c.Produce(t, topic, 0, kafkatest.Numbered(100, 10)...)
	h.awaitValues(t, 0, append(kafkatest.Numbered(0, 5), kafkatest.Numbered(100, 10)...)...)
	awaitCommitted(t, c, 0, 10)
}

func TestWaitsForTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t)
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	eventually(t, "waiting for the topic", func() bool { return strings.Contains(r.Status().Waiting, "does not exist") })
	if r.Healthy() == nil {
		t.Error("healthy without a topic")
	}
	if err := c.CreateTopic(topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	c.Produce(t, topic, 0, "a")
	h.awaitValues(t, 0, "a")
}

func TestNewPartitionsFromTheirStart(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	c.Produce(t, topic, 0, "a")
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	h.awaitValues(t, 0, "a")
	c.AddPartitions(t, topic, 3)
	c.Produce(t, topic, 2, "b", "c")
	h.awaitValues(t, 2, "b", "c")
	h.awaitValues(t, 0, "a")
	if n := len(r.Status().Partitions); n != 3 {
		t.Errorf("%d partitions", n)
	}
}

func TestControlRecordsAndAbortedTail(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	h := newFakeHandler()
	r := start(t, clientConfig(c), fast(), h)
	c.Begin(t, "tx1", topic, 0, "a", "b").End(t, kgo.TryCommit)
	c.Begin(t, "tx2", topic, 0, "x", "y").End(t, kgo.TryAbort)
	h.awaitValues(t, 0, "a", "b")
	awaitCommitted(t, c, 0, 6) // a b commit x y abort
	eventually(t, "lag 0", func() bool { p := r.partition(0); return p.Lag == 0 && p.EndOffset == 6 })
	h.mu.Lock()
	controls := 0
	for _, rec := range h.records[0] {
		if rec.Control {
			controls++
		}
	}
	h.mu.Unlock()
	if controls != 2 {
		t.Errorf("%d control records", controls)
	}

	// An aborted tail in front of an open transaction: its marker is not
	// visible yet, and nothing is left to read.
	aborted := c.Begin(t, "tx3", topic, 0, "z")
	open := c.Begin(t, "tx4", topic, 0, "w")
	aborted.End(t, kgo.TryAbort)
	eventually(t, "the last stable offset behind the aborted record", func() bool { return r.partition(0).EndOffset == 7 })
	eventually(t, "drained behind an aborted tail", func() bool { return r.partition(0).Drained })
	if p := r.partition(0); p.Position != 6 || p.Lag != 3 || p.HighWatermark != 9 {
		t.Errorf("position %d, lag %d, high watermark %d", p.Position, p.Lag, p.HighWatermark)
	}
	open.End(t, kgo.TryCommit)
	h.awaitValues(t, 0, "a", "b", "w")
	awaitCommitted(t, c, 0, 10)
}

func TestNullAndEmptyStayApart(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	for _, r := range []*kgo.Record{
		{Topic: topic, Key: nil, Value: nil, Headers: []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "e", Value: []byte{}}}},
		{Topic: topic, Key: []byte{}, Value: []byte{}},
	} {
		if err := c.Client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	h := newFakeHandler()
	start(t, clientConfig(c), fast(), h)
	h.await(t, "two records", func() bool { return len(h.records[0]) == 2 })
	h.mu.Lock()
	defer h.mu.Unlock()
	null, empty := h.records[0][0], h.records[0][1]
	if null.Key != nil || null.Value != nil || null.Headers[0].Value != nil || null.Headers[1].Value == nil {
		t.Errorf("null became something: %#v", null)
	}
	if empty.Key == nil || empty.Value == nil {
		t.Errorf("empty became null: %#v", empty)
	}
	if null.TopicID == (projection.TopicID{}) || null.Timestamp.IsZero() {
		t.Errorf("coordinates are missing: %#v", null)
	}
}

func TestStaticMembership(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, "a")
	h := newFakeHandler()
	cfg := fast()
	cfg.InstanceID = "pod-1"
	r := start(t, clientConfig(c), cfg, h)
	h.awaitValues(t, 0, "a")
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if n := c.Members(t, group); n != 1 {
		t.Errorf("%d members: a static member keeps its place", n)
	}
	r = start(t, clientConfig(c), cfg, h)
	c.Produce(t, topic, 0, "b")
	h.awaitValues(t, 0, "a", "b")

	// A second process with the same instance ID takes over, and the first says so.
	other := start(t, clientConfig(c), cfg, h)
	if err := r.wait(t); !errors.Is(err, kafkaio.ErrInstanceFenced) {
		t.Fatalf("Run of the fenced member returned %v", err)
	}
	c.Produce(t, topic, 0, "c")
	h.awaitValues(t, 0, "a", "b", "c")
	if err := other.stop(t); err != nil {
		t.Fatal(err)
	}
}

func TestConsumerProtocol(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(4, topic), kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}))
	for p := range int32(4) {
		c.Produce(t, topic, p, "a")
	}
	h := newFakeHandler()
	cfg := fast()
	cfg.GroupProtocol = kafkaio.ConsumerProtocol
	a := start(t, clientConfig(c), cfg, h)
	for p := range int32(4) {
		h.awaitValues(t, p, "a")
		awaitCommitted(t, c, p, 1)
	}
	b := start(t, clientConfig(c), cfg, h)
	eventually(t, "both members have partitions", func() bool {
		return len(a.Status().Partitions) == 2 && len(b.Status().Partitions) == 2
	})
	for p := range int32(4) {
		c.Produce(t, topic, p, "b")
		h.awaitValues(t, p, "a", "b")
		awaitCommitted(t, c, p, 2)
	}
	if err := b.stop(t); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first member has all partitions", func() bool { return len(a.Status().Partitions) == 4 })
	for p := range int32(4) {
		c.Produce(t, topic, p, "c")
		h.awaitValues(t, p, "a", "b", "c")
	}
}

func TestHandlerPanic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	h := newFakeHandler()
	h.onHandle = func(context.Context, []projection.Record) error { panic("boom") }
	r := start(t, clientConfig(c), fast(), h)
	c.Produce(t, topic, 0, "a")
	err := r.wait(t)
	if !errors.Is(err, kafkaio.ErrHandlerPanic) || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("Run returned %v", err)
	}
	if got := c.Committed(t, group, topic, 0); got > 0 {
		t.Errorf("committed %d", got)
	}
}

func TestCommitAbove(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 10)...)
	c.SetCommitted(t, group, topic, 0, 8) // the database is empty
	h := newFakeHandler()
	release := make(chan struct{})
	h.onHandle = func(ctx context.Context, records []projection.Record) error {
		if records[0].Partition == 1 || records[0].Offset < 4 {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cfg := fast()
	cfg.MaxBatchRecords = 2
	defer sampleCommitted(t, c, 0)()
	r := start(t, clientConfig(c), cfg, h)
	h.awaitValues(t, 0, kafkatest.Numbered(0, 4)...)
	h.await(t, "the third batch", func() bool { return h.handling == 1 })
	if p := r.partition(0); !p.Rereading || !p.CommittedAheadOfWatermark || p.Committed != 8 {
		t.Errorf("status: %+v", p)
	}
	if n := r.metric(t, "orderprojector_committed_ahead"); n != 1 {
		t.Errorf("committed_ahead = %v", n)
	}
	c.Produce(t, topic, 1, "x")
	awaitCommitted(t, c, 1, 1) // so commits go on, but not of partition 0
	if got := c.Committed(t, group, topic, 0); got != 8 {
		t.Errorf("committed %d while reading below what was committed", got)
	}
	close(release)
	awaitCommitted(t, c, 0, 10)
	if p := r.partition(0); p.Rereading || p.CommittedAheadOfWatermark {
		t.Errorf("status: %+v", p)
	}
}

func TestRebalanceUnderLoad(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(6, topic), kfake.NumBrokers(3))
	h := newFakeHandler()
	cfg := fast()
	cfg.MaxBatchRecords = 7
	start(t, clientConfig(c), cfg, h)
	for p := range int32(6) {
		defer sampleCommitted(t, c, p)()
	}
	const n = 300
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for i := range n {
			c.Produce(t, topic, int32(i%6), fmt.Sprint(i))
		}
	}()
	for range 3 {
		b := start(t, clientConfig(c), cfg, h)
		eventually(t, "the second member has partitions", func() bool { return len(b.Status().Partitions) > 0 })
		if err := b.stop(t); err != nil {
			t.Fatal(err)
		}
	}
	<-produced
	for p := range int32(6) {
		var want []string
		for i := int(p); i < n; i += 6 {
			want = append(want, fmt.Sprint(i))
		}
		h.awaitValues(t, p, want...)
		awaitCommitted(t, c, p, n/6)
	}
}
