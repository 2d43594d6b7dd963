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
	for _, w := range s.owned() {
		b, ok := all[w.tp.Partition]
		if !ok {
			continue
		}
		w.state.listed(b)
		if w.state.suspicious(b) {
			s.probe(ctx, w, b)
		}
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
		s.lagLocked() > 0 && s.position < b.end && time.Since(s.lastProgress) > probeAfter
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

// timeLag is the age of the record at the position while there is lag: that
// record if it was fetched, else the last one applied.
func (s *partitionState) timeLag(f *feed, now time.Time) time.Duration {
	head, buffered := f.head()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lagLocked() == 0:
		return 0
	case s.inFlight:
		return max(0, now.Sub(s.inFlightTime))
	case buffered:
		return max(0, now.Sub(head))
	case !s.lastTime.IsZero():
		return max(0, now.Sub(s.lastTime))
	}
	return max(0, now.Sub(s.lastProgress))
}
