package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// instanceReleaseLimit is how long a static member of the consumer protocol
// waits for its predecessor's session to expire before it gives up.
const instanceReleaseLimit = 90 * time.Second

// A membership is what the group tells a session.
type membership interface {
	assigned(partitions []int32, rebalanced bool)
	revoked(partitions []int32)
	lost(partitions []int32)
	groupFailed(err error)
}

// The member is the group member: it joins, heartbeats and commits, and
// fetches nothing.
type member struct {
	client *kgo.Client
	group  string
	topic  string
	// instanceID is set for a static member.
	instanceID string
	logger     *slog.Logger
	opened     chan struct{} // callbacks wait for it
	closing    chan struct{} // ends what a callback waits for

	// Used by the assignment callback alone.
	lastAssigned   time.Time
	lastGeneration int32
	restarts       int

	mu              sync.Mutex
	joined          bool
	since           time.Time // of joined
	lastError       error
	failed          int // joins or sessions that failed since the last assignment
	unreleasedSince time.Time
}

// newMember creates the client, which begins to join at once. Its callbacks
// wait for open.
func newMember(opts []kgo.Opt, cfg ConsumerConfig, logger *slog.Logger, on membership) (*member, error) {
	m := &member{
		group: cfg.Group, topic: cfg.Topic, instanceID: cfg.InstanceID,
		logger: logger, opened: make(chan struct{}), closing: make(chan struct{}), since: time.Now(),
	}
	pick := func(fn func([]int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			<-m.opened
			fn(partitions[cfg.Topic])
		}
	}
	opts = append(opts,
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil // the fetcher fetches, not this client
		}),
		kgo.SessionTimeout(cfg.SessionTimeout),
		kgo.HeartbeatInterval(cfg.HeartbeatInterval),
		kgo.RebalanceTimeout(cfg.RebalanceTimeout),
		kgo.OnPartitionsAssigned(pick(func(partitions []int32) {
			rebalanced := m.pace(len(partitions) > 0)
			m.set(true, nil)
			on.assigned(partitions, rebalanced)
		})),
		kgo.OnPartitionsRevoked(pick(on.revoked)),
		kgo.OnPartitionsLost(pick(func(partitions []int32) {
			m.set(false, nil)
			on.lost(partitions)
		})),
		kgo.WithHooks(groupErrorHook(func(err error) {
			<-m.opened
			m.set(false, err)
			on.groupFailed(m.explain(err))
		})),
	)
	if cfg.GroupProtocol == ConsumerProtocol {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(cfg.InstanceID))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka group client: %w", err)
	}
	m.client = client
	return m, nil
}

// pace reports whether the group has a new generation, and slows down a client
// that starts the same one again and again: with the consumer protocol, while
// no broker answers, it does so hundreds of times a second.
func (m *member) pace(somethingNew bool) (rebalanced bool) {
	_, generation := m.client.GroupMetadata()
	rebalanced = somethingNew || generation != m.lastGeneration
	if rebalanced || time.Since(m.lastAssigned) > 2*maxBackoff {
		m.restarts = 0
	} else {
		m.restarts++
	}
	m.lastAssigned, m.lastGeneration = time.Now(), generation
	if m.restarts > 0 {
		select {
		case <-time.After(backoff(m.restarts - 1)):
		case <-m.closing:
		}
	}
	return rebalanced
}

// open lets the callbacks through.
func (m *member) open() { close(m.opened) }

type groupErrorHook func(error)

func (h groupErrorHook) OnGroupManageError(err error) { h(err) }

func (m *member) set(joined bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if joined != m.joined {
		m.joined, m.since = joined, time.Now()
	}
	if joined || err != nil {
		m.lastError = err
	}
	if joined {
		m.unreleasedSince, m.failed = time.Time{}, 0
	} else if err != nil {
		m.failed++
	}
}

// failures counts the group's errors since it last assigned anything.
func (m *member) failures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// explain adds what an operator can do, and marks as fatal what another try
// cannot heal.
func (m *member) explain(err error) error {
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		return fatalf("%w: %w (give every running process its own --instance-id)", ErrInstanceFenced, err)
	case errors.Is(err, kerr.UnreleasedInstanceID):
		m.mu.Lock()
		if m.unreleasedSince.IsZero() {
			m.unreleasedSince = time.Now()
		}
		waited := time.Since(m.unreleasedSince)
		m.mu.Unlock()
		if waited > instanceReleaseLimit {
			return fatalf("%w: %w (give every running process its own --instance-id)", ErrInstanceFenced, err)
		}
		return fmt.Errorf("%w (the instance ID is still held: by another process, or by this one's last run until its session expires)", err)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("%w (grant READ on the consumer group)", err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("%w (other members of the group use another protocol or assignor: stop them, or use another group)", err)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("%w (the broker's group.min.session.timeout.ms and group.max.session.timeout.ms bound the session timeout)", err)
	}
	return err
}

// watch logs what the client reports outside of the callbacks, until ctx ends.
func (m *member) watch(ctx context.Context) error {
	for {
		fetches := m.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if fetches.IsClientClosed() {
			return errClientClosed
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			var session *kgo.ErrGroupSession
			if !errors.As(err, &session) { // those come through the hook
				m.logger.Warn("the group client reports an error", "error", err)
			}
		})
		sleep(ctx, 100*time.Millisecond)
	}
}

// commit is a commitFunc.
func (m *member) commit(ctx context.Context, positions map[int32]int64) (map[int32]error, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	offsets := make(map[int32]kgo.EpochOffset, len(positions))
	for partition, position := range positions {
		offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: position}
	}
	var failed map[int32]error
	var err error
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, requestErr error) {
			if err = requestErr; err != nil {
				return
			}
			failed = make(map[int32]error)
			answered := make(map[int32]bool)
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					answered[p.Partition] = true
					if perr := kerr.ErrorForCode(p.ErrorCode); perr != nil {
						failed[p.Partition] = perr
					}
				}
			}
			for partition := range positions {
				if !answered[partition] {
					failed[partition] = errors.New("the broker did not answer for the partition")
				}
			}
		})
	if err != nil {
		return nil, fmt.Errorf("committing offsets: %w", err)
	}
	return failed, nil
}

// close leaves the group (a static member keeps its place) and closes the
// client, within the time that ctx gives.
func (m *member) close(ctx context.Context) {
	close(m.closing)
	err := m.client.LeaveGroupContext(ctx)
	if m.instanceID != "" && errors.Is(err, kerr.InvalidRequest) {
		err = m.pause(ctx)
	}
	if err != nil {
		m.logger.Warn("leaving the group failed, its partitions move after the session timeout", "error", err)
	}
	closeClient(ctx, m.client, m.logger)
}

// pause tells the group that a static member of the consumer protocol stops
// and will be back. The client's own farewell does not name the instance, so
// brokers refuse it, and the next run would have to wait until the session expires.
func (m *member) pause(ctx context.Context) error {
	memberID, _ := m.client.GroupMetadata()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group = m.group
	req.MemberID = memberID
	req.InstanceID = kmsg.StringPtr(m.instanceID)
	req.MemberEpoch = -2
	resp, err := req.RequestWith(ctx, m.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// closeClient does not wait for a client longer than ctx lasts.
func closeClient(ctx context.Context, client *kgo.Client, logger *slog.Logger) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		logger.Warn("closing a kafka client takes too long, not waiting for it")
	}
}
