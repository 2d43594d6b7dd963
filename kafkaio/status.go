package kafkaio

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// Status is a snapshot of the consumer.
type Status struct {
	Topic   string
	TopicID projection.TopicID
	Group   string
	// Waiting says why nothing is consumed at all; empty while a session runs.
	Waiting string
	Member  MemberStatus
	// Paused says why nothing is fetched although nothing is wrong; nil while the gate is open.
	Paused error
	// LastContact is when a broker last answered, ContactError what went wrong since.
	LastContact  time.Time
	ContactError string
	// Partitions are the owned ones, by number.
	Partitions []PartitionStatus
}

// MemberStatus says how the member stands with its group.
type MemberStatus struct {
	Joined     bool
	Since      time.Time // of Joined
	MemberID   string
	Generation int32 // the member epoch with the consumer protocol
	LastError  string
}

// PartitionStatus is a snapshot of one owned partition. Offsets that are not
// known yet are projection.NoOffset.
type PartitionStatus struct {
	Topic     string
	Partition int32
	// Assigned is false until the handler has said where to start.
	Assigned bool
	// Position is the next offset to read; everything below is durable.
	Position int64
	// Committed is the group's committed offset as far as this member knows.
	Committed int64
	// LogStart is the first offset that still exists, EndOffset the last stable one.
	LogStart  int64
	EndOffset int64
	// HighWatermark is the end of what is replicated: above EndOffset while a transaction is open.
	HighWatermark int64
	// Lag counts offsets from the position to the high watermark.
	Lag int64
	// Drained is true when everything is applied that can be read: up to EndOffset.
	Drained bool
	// LagTime is the age of the first record that waits, zero without lag. LagTimeKnown is false for a moment after an assignment.
	LagTime      time.Duration
	LagTimeKnown bool
	// BehindTransaction counts the offsets from the first record of the oldest open transaction, at
	// TransactionOffset, to the high watermark. Zero means that none is open.
	BehindTransaction int64
	TransactionOffset int64
	TransactionSince  time.Time // when this member first saw it
	// RetentionHeadroom counts the offsets between the log's start and the
	// position: how far retention is from removing unread records.
	RetentionHeadroom int64
	// LastProgress is when the position last moved, or was found at the end.
	LastProgress time.Time
	// HaltedReason is set when the partition needs an operator; HaltedHint says what to do.
	HaltedReason string
	HaltedHint   string
	// LastError is the last failure since the last progress.
	LastError string
	// Rereading is true while the position is below what the group has committed.
	Rereading bool
	// CommittedAheadOfWatermark is true when the group's committed offset was
	// ahead of what the projection has stored, and the position has not caught up yet.
	CommittedAheadOfWatermark bool
}

// Status returns a snapshot. It is safe for concurrent use and does no I/O.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	s, waiting := c.current, c.waiting
	c.mu.Unlock()
	status := Status{Topic: c.cfg.Topic, Group: c.cfg.Group, Waiting: waiting}
	_, status.Paused = c.cfg.Gate.Closed()
	last, err := c.contact.state()
	status.LastContact = last
	if err != nil {
		status.ContactError = err.Error()
	}
	if s == nil {
		return status
	}
	status.TopicID = s.topicID
	status.Member = s.member.status()
	now := time.Now()
	for _, w := range s.owned() {
		status.Partitions = append(status.Partitions, w.status(now))
	}
	return status
}

func (m *member) status() MemberStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	status := MemberStatus{Joined: m.joined, Since: m.since}
	if m.lastError != nil {
		status.LastError = m.lastError.Error()
	}
	status.MemberID, status.Generation = m.client.GroupMetadata()
	return status
}

func (w *worker) status(now time.Time) PartitionStatus {
	committed := w.session.committer.committedOf(w.stay)
	lagTime, lagTimeKnown := w.state.timeLag(w.feed, now)
	s := w.state
	s.mu.Lock()
	defer s.mu.Unlock()
	status := PartitionStatus{
		Topic:     w.tp.Topic,
		Partition: w.tp.Partition,
		Assigned:  s.assignedYet,
		Position:  s.position,
		Committed: committed,
		LogStart:  projection.NoOffset,
		EndOffset: projection.NoOffset,

		HighWatermark:     projection.NoOffset,
		BehindTransaction: s.transaction.offsets,
		TransactionOffset: s.transaction.offset,
		TransactionSince:  s.transaction.since,

		Lag:          s.lagLocked(),
		Drained:      s.drainedLocked(),
		LagTime:      lagTime,
		LagTimeKnown: lagTimeKnown,
		LastProgress: s.lastProgress,
		HaltedReason: s.haltReason,
		HaltedHint:   s.haltHint,
		LastError:    s.lastError,
		Rereading:    s.assignedYet && s.position < committed,
	}
	status.CommittedAheadOfWatermark = s.assignedYet && s.aheadAtStart && s.position < s.groupOffset
	if s.bounded {
		status.LogStart, status.EndOffset, status.HighWatermark = s.bounds.start, s.bounds.end, s.bounds.high
		if s.assignedYet {
			status.RetentionHeadroom = s.position - s.bounds.start
		}
	}
	return status
}

// Healthy returns nil while consumption makes progress or has nothing to do.
// Slow but moving is healthy. It fails while the gate is closed, when there is no session, the member is
// out of its group or no broker answers for the stall limit, when a partition
// is halted, when one could read on and made no progress for the stall limit, or when a transaction
// stays open for longer than that.
func (c *Consumer) Healthy() error {
	return c.Status().healthy(time.Now(), c.cfg.StallLimit)
}

func (s Status) healthy(now time.Time, limit time.Duration) error {
	if s.Waiting != "" {
		return errors.New(s.Waiting)
	}
	var errs []error
	if s.Paused != nil {
		errs = append(errs, s.Paused)
	}
	if now.Sub(s.LastContact) > limit {
		errs = append(errs, fmt.Errorf("no broker has answered for %s: %s", now.Sub(s.LastContact).Round(time.Second), s.ContactError))
	}
	if !s.Member.Joined && now.Sub(s.Member.Since) > limit {
		errs = append(errs, fmt.Errorf("out of the consumer group %s for %s: %s", s.Group, now.Sub(s.Member.Since).Round(time.Second), s.Member.LastError))
	}
	for _, p := range s.Partitions {
		if open := now.Sub(p.TransactionSince); p.BehindTransaction > 0 && open > limit {
			errs = append(errs, fmt.Errorf("%s-%d: %d offsets wait behind a transaction that begins at offset %d and is open for %s, since %s (%s)",
				p.Topic, p.Partition, p.BehindTransaction, p.TransactionOffset, open.Round(time.Second),
				p.TransactionSince.UTC().Format(time.RFC3339), transactionHint))
		}
		idle := now.Sub(p.LastProgress)
		switch {
		case p.HaltedReason != "":
			errs = append(errs, &projection.HaltError{Reason: fmt.Sprintf("%s-%d: %s", p.Topic, p.Partition, p.HaltedReason), Hint: p.HaltedHint})
		case idle <= limit, s.Paused != nil:
		case !p.Assigned:
			errs = append(errs, fmt.Errorf("%s-%d: not started for %s: %s", p.Topic, p.Partition, idle.Round(time.Second), p.LastError))
		case p.Lag > 0 && !p.Drained:
			errs = append(errs, &StalledError{Topic: p.Topic, Partition: p.Partition, Lag: p.Lag, Since: idle, LastError: p.LastError})
		}
	}
	return errors.Join(errs...)
}
