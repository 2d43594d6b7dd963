package kafkaio

import (
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// partitionState is what a worker tells about itself. Every method is safe for
// concurrent use.
type partitionState struct {
	mu sync.Mutex

	assignedYet  bool
	position     int64
	commitAbove  int64
	groupOffset  int64 // what the group had committed at the assignment
	aheadAtStart bool  // groupOffset was above the start
	bounds       logBounds
	bounded      bool  // bounds are known
	drained      int64 // positions from here to the end hold no visible record, as of drainedEnd
	drainedEnd   int64
	inFlight     bool
	inFlightTime time.Time // timestamp of the record at the position
	lastTime     time.Time // timestamp of the last record applied
	lastProgress time.Time
	refetched    time.Time // when the fetcher was last told its place again
	lastError    string
	haltReason   string
	haltHint     string
	gateClosed   error // why nothing is fetched; nil while the gate is open
}

func newPartitionState() *partitionState {
	return &partitionState{
		position: projection.NoOffset, commitAbove: projection.NoOffset, groupOffset: projection.NoOffset,
		lastProgress: time.Now(),
	}
}

// described takes what the broker says before the handler is asked. Until it
// has answered, the group's committed offset stands for the position.
func (s *partitionState) described(a projection.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assignedYet = false
	s.position, s.groupOffset = projection.NoOffset, a.Committed
	s.bounds, s.bounded = logBounds{a.LogStart, a.LogEnd}, true
}

func (s *partitionState) assigned(a projection.Assignment, start projection.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assignedYet = true
	s.position, s.commitAbove, s.groupOffset = start.Offset, start.CommitAbove, a.Committed
	s.aheadAtStart = a.Committed > start.Offset
	s.bounds, s.bounded = logBounds{a.LogStart, a.LogEnd}, true
	s.lastProgress, s.lastError = time.Now(), ""
}

func (s *partitionState) moved(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = position
	// A record that was read was stable: the end is at least here, whatever the last listing said.
	s.bounds.end = max(s.bounds.end, position)
}

// closed takes what the gate says. Time that passed behind a closed gate is no stall.
func (s *partitionState) closed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why == nil && s.gateClosed != nil {
		s.lastProgress = time.Now()
	}
	s.gateClosed = why
}

func (s *partitionState) applying(batch []projection.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	s.inFlight, s.inFlightTime = true, batch[0].Timestamp
	s.bounds.end = max(s.bounds.end, batch[len(batch)-1].Offset+1)
}

func (s *partitionState) applied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = false
}

func (s *partitionState) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

func (s *partitionState) progressed(last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTime, s.lastProgress, s.lastError = last, time.Now(), ""
}

func (s *partitionState) healthy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError = ""
}

func (s *partitionState) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError = err.Error()
}

func (s *partitionState) halted(h *projection.HaltError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.haltReason, s.haltHint = h.Reason, h.Hint
}

// resumed ends a halt.
func (s *partitionState) resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.haltReason, s.haltHint = "", ""
}

// listed takes the bounds of a listing. A partition that is caught up makes
// progress by having nothing to do.
func (s *partitionState) listed(b logBounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	s.bounds, s.bounded = logBounds{b.start, max(b.end, s.position)}, true
	if s.assignedYet && s.lagLocked() == 0 {
		s.lastProgress = time.Now()
	}
}

// beginLocked starts the time without progress anew where there was nothing to do: before records are
// seen that are to be waited for.
func (s *partitionState) beginLocked() {
	if s.assignedYet && s.lagLocked() == 0 {
		s.lastProgress = time.Now()
	}
}

func (s *partitionState) lagLocked() int64 {
	if !s.bounded {
		return 0
	}
	if !s.assignedYet {
		return max(0, s.bounds.end-max(s.groupOffset, s.bounds.start))
	}
	if s.position == s.drained && s.bounds.end == s.drainedEnd {
		return 0
	}
	return max(0, s.bounds.end-s.position)
}

// nothingVisible notes that a look at the log from position to end found no
// visible record: aborted transactions leave such tails, and they are no lag.
func (s *partitionState) nothingVisible(position, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained, s.drainedEnd = position, end
}
