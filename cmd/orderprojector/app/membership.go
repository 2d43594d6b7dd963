package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	heartbeatInterval = 5 * time.Second
	heartbeatTimeout  = 5 * time.Second
	ownedInterval     = time.Second // between looks at which partitions are owned
	topicInterval     = 30 * time.Second
	leaveLimit        = time.Second
)

// membership tells the other members that this one runs and what it reads, and finds partitions that no running
// member reads. Another program in the consumer group may have those, which Kafka alone takes for reading.
type membership struct {
	member pgstore.Member
	store  *pgstore.Store
	topic  *kafkaio.TopicReader
	owned  func() []int32
	limit  time.Duration // for which a partition may have no member
	logger *slog.Logger

	desc     *prometheus.Desc
	beaten   time.Time
	told     []int32 // owned partitions of the last heartbeat
	sized    time.Time
	size     int32 // partitions of the topic; 0 until Kafka said
	failing  bool
	warned   bool
	mu       sync.Mutex
	known    bool
	orphaned map[int32]time.Time // partitions without a member, and since when
}

func newMembership(cfg config.Config, schema int64, store *pgstore.Store, owned func() []int32, logger *slog.Logger) (*membership, error) {
	topic, err := kafkaio.NewTopicReader(KafkaClient(cfg.Kafka), logger)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return &membership{
		member: pgstore.Member{
			Group: cfg.Kafka.Group, Name: uuid.NewString(), Topic: cfg.Kafka.Topic, Host: host, ProcessID: os.Getpid(),
			Program: ReadBuild().Version, SchemaVersion: schema,
		},
		store: store, topic: topic, owned: owned, limit: cfg.StallLimit, logger: logger,
		desc: prometheus.NewDesc("orderprojector_partitions_without_member",
			"Partitions of the topic that no running member of this program has read for longer than the stall limit.", nil, nil),
	}, nil
}

// run writes heartbeats until ctx ends.
func (m *membership) run(ctx context.Context) {
	defer m.topic.Close()
	ticker := time.NewTicker(ownedInterval)
	defer ticker.Stop()
	for {
		owned := m.owned()
		if time.Since(m.beaten) >= heartbeatInterval || !slices.Equal(owned, m.told) {
			m.beat(ctx, owned)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (m *membership) beat(ctx context.Context, owned []int32) {
	if time.Since(m.sized) >= topicInterval {
		m.measure(ctx)
	}
	beatCtx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	read, err := m.store.Beat(beatCtx, m.member, owned)
	m.beaten, m.told = time.Now(), owned
	if err != nil && !m.failing && ctx.Err() == nil {
		m.logger.Warn("the database does not take the member's heartbeat; consumption does not depend on it", "error", err, "hint", Hint(err))
	}
	m.failing = err != nil
	m.judge(read, err == nil && m.size > 0)
	m.tell()
}

// measure asks Kafka how many partitions the topic has. The last answer holds where there is none.
func (m *membership) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if ranges, err := m.topic.Ranges(ctx, m.member.Topic); err == nil {
		m.size = int32(len(ranges))
	}
	m.sized = time.Now()
}

// judge notes which partitions nobody reads. What is not known is forgotten: time that passed meanwhile proves nothing.
func (m *membership) judge(read []int32, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.orphaned
	m.known, m.orphaned = known, map[int32]time.Time{}
	if !known {
		return
	}
	for p := range m.size {
		if !slices.Contains(read, p) {
			m.orphaned[p] = cmp.Or(before[p], time.Now())
		}
	}
}

// tell logs when partitions come to have no member, and when all have one again.
func (m *membership) tell() {
	err := m.trouble()
	if err != nil && !m.warned {
		m.logger.Warn(err.Error(), "hint", Hint(err))
	}
	if err == nil && m.warned {
		m.logger.Info("every partition is read by a member of this program again")
	}
	m.warned = err != nil
}

// leave removes the member's row.
func (m *membership) leave(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := m.store.Leave(ctx, m.member); err != nil {
		m.logger.Debug("the member's heartbeat stays, and is void in half a minute", "error", err)
	}
}

// trouble names the partitions that nobody has read for too long; nil for none.
func (m *membership) trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var orphaned []int32
	since := time.Now()
	for p, t := range m.orphaned {
		if time.Since(t) > m.limit {
			orphaned = append(orphaned, p)
			since = minTime(since, t)
		}
	}
	if len(orphaned) == 0 {
		return nil
	}
	slices.Sort(orphaned)
	return &OrphanedError{Group: m.member.Group, Topic: m.member.Topic, Partitions: orphaned, Since: since}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Describe implements prometheus.Collector.
func (m *membership) Describe(descs chan<- *prometheus.Desc) { descs <- m.desc }

// Collect implements prometheus.Collector. What is not known is absent.
func (m *membership) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	known := m.known
	m.mu.Unlock()
	if !known {
		return
	}
	n := 0
	var orphaned *OrphanedError
	if errors.As(m.trouble(), &orphaned) {
		n = len(orphaned.Partitions)
	}
	metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(n))
}

// OrphanedError says that no running member of this program reads partitions of the group's topic.
type OrphanedError struct {
	Group, Topic string
	Partitions   []int32
	Since        time.Time // of the first; zero where it is not known
}

func (e *OrphanedError) Error() string {
	since := ""
	if !e.Since.IsZero() {
		since = " for " + time.Since(e.Since).Round(time.Second).String()
	}
	return fmt.Sprintf("no running member of this program in group %s has read partition %s of %s%s", e.Group, joined(e.Partitions), e.Topic, since)
}

// Hint says where to look.
func (e *OrphanedError) Hint() string {
	return "another program may be in the consumer group: kafka-consumer-groups.sh --describe --members --verbose --group " + e.Group
}

func joined(numbers []int32) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(texts, ", ")
}
