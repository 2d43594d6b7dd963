package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// missingLimit is how many looks in a row must find the topic missing before
// the session believes it: a broker that has just started may not know it yet.
const missingLimit = 2

// watchLoop looks at the topic's identity and at the log's bounds. It ends the
// session when the topic is another one or gone.
func (s *session) watchLoop(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.WatchInterval)
	defer ticker.Stop()
	missing, partitions := 0, 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-s.doubted:
		case <-s.begun:
			s.list(ctx)
			continue
		}
		id, count, err := lookupTopic(ctx, s.fetcher.client, s.cfg.Topic)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTopicMissing):
			s.unreachable(err)
			if missing++; missing >= missingLimit {
				return err
			}
			continue
		case err != nil:
			s.unreachable(err)
			continue
		case id != s.topicID:
			return fmt.Errorf("%w: %s was %s and is %s", errTopicRecreated, s.cfg.Topic, s.topicID, id)
		}
		if missing = 0; count != partitions {
			// The group's leader shares out new partitions once its client knows of them.
			s.member.client.ForceMetadataRefresh()
			partitions = count
		}
		s.list(ctx)
	}
}

// list updates what is known of the log of each owned partition.
func (s *session) list(ctx context.Context) {
	all, err := listBounds(ctx, s.admin, s.cfg.Topic)
	if err != nil {
		s.unreachable(err)
		return
	}
	if away := s.health.answered(); away > 0 {
		s.logger.Info("the kafka cluster answers again", "after", away.Round(time.Millisecond))
	}
	heads, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, w := range s.owned() {
		b, ok := all[w.tp.Partition]
		if !ok {
			continue
		}
		s.lookAtHead(heads, w, b)
		w.listed(b)
		if w.state.suspicious(b) {
			s.probe(ctx, w, b)
		}
	}
}

// lookAtHead reads the record again that waits at the position, where none was fetched: how
// old it is must be known while the group is paused, too. It asks once per position.
func (s *session) lookAtHead(ctx context.Context, w *worker, b logBounds) {
	offset, unknown := w.state.unknownHead(b)
	if !unknown || !w.feed.empty() {
		return
	}
	if at, found, err := s.raw.timestamp(ctx, w.tp, offset); err == nil && found {
		w.state.foundHead(offset, at)
	}
}

func (s *session) unreachable(err error) {
	if s.health.failed(err) {
		s.logger.Warn("the kafka cluster does not answer; consuming goes on when it does", "error", err)
	}
}

// probe looks what is left between the position and the end of the stable log.
//
// Nothing visible: the tail of an aborted transaction, whose marker lies
// behind the end, is invisible to the fetcher and would look like lag for ever.
// A visible record that the fetcher has not brought for a long time: the
// client has lost its place, and is told again.
func (s *session) probe(ctx context.Context, w *worker, b logBounds) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	position := w.state.at()
	for next := position; next < b.end; {
		f, err := s.raw.fetch(ctx, w.tp, next, fetchMaxPartitionBytes)
		if err != nil || f.next <= next {
			if next == position && w.state.neglected() {
				s.searchBehind(ctx, w, position, b.end, err)
			}
			return
		}
		if len(f.records) > 0 {
			if w.state.neglected() && w.feed.empty() {
				w.logger.Warn("the client does not bring records that the broker has, fetching anew", "position", position)
				s.fetcher.seek(w.feed, position)
			}
			return
		}
		next = f.next
	}
	w.state.nothingVisible(position, b.end)
}

// suspicious reports whether a partition has lag, has nothing in flight, and
// has not moved for a while.
func (s *partitionState) suspicious(b logBounds) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assignedYet && s.haltReason == "" && s.gateClosed == nil && !s.inFlight && s.lastError == "" &&
		!s.drainedLocked() && s.position < b.end && time.Since(s.lastProgress) > probeAfter
}

const (
	probeAfter  = 2 * time.Second
	refetchTime = 15 * time.Second
)

// neglected reports, once per refetchTime, that a suspicious partition has not
// moved for that long.
func (s *partitionState) neglected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastProgress) < refetchTime || time.Since(s.refetched) < refetchTime {
		return false
	}
	s.refetched = time.Now()
	return true
}

func (s *partitionState) at() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// unknownHead returns the offset of the first record that waits, if nobody knows how old it is.
func (s *partitionState) unknownHead(b logBounds) (offset int64, unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset = s.waitingLocked()
	return offset, s.bounded && !s.inFlight && offset < b.high && (s.headTime.IsZero() || s.headOffset != offset)
}

func (s *partitionState) foundHead(offset int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headOffset, s.headTime = offset, at
}

// timeLag is the age of the first record that waits: of the batch in flight, of what
// was fetched, or as it was looked up. Just after a batch, that batch's last record stands for it.
// known is false until one of them is there.
func (s *partitionState) timeLag(f *feed, now time.Time) (age time.Duration, known bool) {
	head, buffered := f.head()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lagLocked() == 0:
		return 0, s.bounded
	case s.inFlight:
		head = s.inFlightTime
	case buffered:
	case !s.headTime.IsZero() && s.headOffset == s.waitingLocked():
		head = s.headTime
	case !s.lastTime.IsZero():
		head = s.lastTime
	default:
		return 0, false
	}
	return max(0, now.Sub(head)), true
}
