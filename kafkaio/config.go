package kafkaio

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// GroupProtocol is the consumer group protocol. The values are Kafka's own.
type GroupProtocol string

// The group protocols.
const (
	ClassicProtocol  GroupProtocol = "classic"
	ConsumerProtocol GroupProtocol = "consumer" // KIP-848, Kafka 4.0 and later
)

// Bounds of one call of Handle, unless configured otherwise.
const (
	DefaultMaxBatchRecords = 8192
	DefaultMaxBatchBytes   = 6 << 20
)

// DataLossPolicy says what happens when the log no longer holds records that
// were not yet read.
type DataLossPolicy string

// The policies.
const (
	// HaltOnDataLoss halts the partition and leaves the others running.
	HaltOnDataLoss DataLossPolicy = "halt"
	// ExitOnDataLoss makes Consumer.Run return an error.
	ExitOnDataLoss DataLossPolicy = "exit"
	// ContinueOnDataLoss reports and counts the loss and goes on behind it.
	ContinueOnDataLoss DataLossPolicy = "continue"
)

// ConsumerConfig configures one member of a consumer group. Zero fields take
// the defaults that are named with them; Group and Topic have none.
type ConsumerConfig struct {
	Group string
	Topic string
	// InstanceID makes the member static: its partitions stay reserved while
	// it restarts. It must be unique among the running members.
	InstanceID string
	// GroupProtocol defaults to classic (cooperative-sticky).
	GroupProtocol GroupProtocol

	// SessionTimeout is how long a member that died keeps its partitions
	// (10 s). With the consumer protocol the broker decides instead.
	SessionTimeout time.Duration
	// HeartbeatInterval defaults to 1 s and must be below a third of the session timeout or so.
	// Members learn of a rebalance by their next heartbeat, so a longer one adds to
	// the time in which nobody reads the partitions of a member that is gone.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long a member may take to give up partitions
	// (30 s). A batch in flight gets a third of it to finish.
	RebalanceTimeout time.Duration
	// ShutdownGrace bounds Run after its context ends (10 s): batches in
	// flight finish within it or are abandoned.
	ShutdownGrace time.Duration

	// MaxBatchRecords and MaxBatchBytes bound one call of Handle (4096 and 4 MiB;
	// a single larger record still goes through).
	MaxBatchRecords int
	MaxBatchBytes   int64
	// MaxPartitionBytes and MaxBufferedBytes bound what is fetched ahead of
	// the handler, per partition and in total (2 MiB and 6 MiB), before
	// fetching pauses. One more fetch response may come on top.
	MaxPartitionBytes int64
	MaxBufferedBytes  int64

	// CommitInterval is how often positions are committed (1 s).
	CommitInterval time.Duration
	// CheckInterval is how often an idle partition checks the database (5 s).
	CheckInterval time.Duration
	// WatchInterval is how often offsets and the topic's identity are looked up (5 s).
	WatchInterval time.Duration
	// StallLimit is how long a partition may have lag and make no progress
	// before Healthy fails (60 s).
	StallLimit time.Duration

	// OnDataLoss defaults to halt.
	OnDataLoss DataLossPolicy

	// Gate, while it is closed, keeps records from being fetched and applied. Membership,
	// heartbeats and idle checks go on, and a batch in flight finishes. nil is always open.
	Gate projection.Gate
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	orDuration(&c.SessionTimeout, 10*time.Second)
	orDuration(&c.HeartbeatInterval, min(time.Second, c.SessionTimeout/3))
	orDuration(&c.RebalanceTimeout, 30*time.Second)
	orDuration(&c.ShutdownGrace, 10*time.Second)
	orDuration(&c.CommitInterval, time.Second)
	orDuration(&c.CheckInterval, 5*time.Second)
	orDuration(&c.WatchInterval, 5*time.Second)
	orDuration(&c.StallLimit, time.Minute)
	if c.GroupProtocol == "" {
		c.GroupProtocol = ClassicProtocol
	}
	if c.MaxBatchRecords == 0 {
		c.MaxBatchRecords = DefaultMaxBatchRecords
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = DefaultMaxBatchBytes
	}
	if c.MaxPartitionBytes == 0 {
		c.MaxPartitionBytes = 4 << 20
	}
	if c.MaxBufferedBytes == 0 {
		c.MaxBufferedBytes = 12 << 20
	}
	if c.OnDataLoss == "" {
		c.OnDataLoss = HaltOnDataLoss
	}
	if c.Gate == nil {
		c.Gate = openGate{}
	}
	return c
}

// openGate is always open.
type openGate struct{}

func (openGate) Closed() (<-chan struct{}, error) { return nil, nil }

func orDuration(d *time.Duration, byDefault time.Duration) {
	if *d == 0 {
		*d = byDefault
	}
}

// Validate names every field that is wrong.
func (c ConsumerConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.Group == "" {
		bad("no consumer group")
	}
	if c.Topic == "" {
		bad("no topic")
	}
	switch c.GroupProtocol {
	case ClassicProtocol, ConsumerProtocol:
	default:
		bad("group protocol %q: must be classic or consumer", c.GroupProtocol)
	}
	switch c.OnDataLoss {
	case HaltOnDataLoss, ExitOnDataLoss, ContinueOnDataLoss:
	default:
		bad("on data loss %q: must be halt, exit or continue", c.OnDataLoss)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		min   time.Duration
	}{
		{"session timeout", c.SessionTimeout, time.Second},
		{"heartbeat interval", c.HeartbeatInterval, 10 * time.Millisecond},
		{"rebalance timeout", c.RebalanceTimeout, time.Second},
		{"shutdown grace", c.ShutdownGrace, time.Millisecond},
		{"commit interval", c.CommitInterval, time.Millisecond},
		{"check interval", c.CheckInterval, time.Millisecond},
		{"watch interval", c.WatchInterval, time.Millisecond},
		{"stall limit", c.StallLimit, time.Millisecond},
	} {
		if d.value < d.min {
			bad("%s %s: must be at least %s", d.name, d.value, d.min)
		}
	}
	if c.HeartbeatInterval >= c.SessionTimeout {
		bad("heartbeat interval %s must be below the session timeout %s", c.HeartbeatInterval, c.SessionTimeout)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"max batch records", int64(c.MaxBatchRecords)},
		{"max batch bytes", c.MaxBatchBytes},
		{"max partition bytes", c.MaxPartitionBytes},
		{"max buffered bytes", c.MaxBufferedBytes},
	} {
		if n.value < 1 {
			bad("%s %d: must be positive", n.name, n.value)
		}
	}
	return errors.Join(errs...)
}
