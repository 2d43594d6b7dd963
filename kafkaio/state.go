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
	empty        int64 // offsets from here to emptyEnd hold no visible record
	emptyEnd     int64
	headOffset   int64     // of the record that headTime is of
	headTime     time.Time // timestamp of the first record that waits, when it was looked up
	transaction  openTransaction
	told         openTransaction // the one that the log told of, until its end is told, too
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
func (s *partitionState) described(a projection.Assignment, b logBounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assignedYet = false
	s.position, s.groupOffset = projection.NoOffset, a.Committed
	s.bounds, s.bounded = b, true
}

func (s *partitionState) assigned(a projection.Assignment, b logBounds, start projection.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assignedYet = true
	s.position, s.commitAbove, s.groupOffset = start.Offset, start.CommitAbove, a.Committed
	s.aheadAtStart = a.Committed > start.Offset
	s.bounds, s.bounded = b, true
	s.lastProgress, s.lastError = time.Now(), ""
	s.lastTime = time.Time{} // of a record that may be far from the position now
}

func (s *partitionState) moved(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = position
	s.readableLocked(position)
	s.transaction.passed(position)
}

// readableLocked notes that records below an offset were read. They were stable: the end is
// at least here, whatever the last listing said.
func (s *partitionState) readableLocked(offset int64) {
	s.bounds.end = max(s.bounds.end, offset)
	s.bounds.high = max(s.bounds.high, offset)
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
	s.readableLocked(batch[len(batch)-1].Offset + 1)
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

// listed takes the bounds of a listing. A partition that is drained makes
// progress by having nothing to do. It returns the transactions of which the
// log has to tell: one that has ended, and one that is open for longer than patience.
func (s *partitionState) listed(b logBounds, patience time.Duration) (ended, news openTransaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	s.transaction.listed(b, time.Now())
	s.bounds, s.bounded = b, true
	s.readableLocked(s.position)
	s.transaction.passed(s.position)
	if s.drainedLocked() {
		s.lastProgress = time.Now()
	}
	if s.told.since != s.transaction.since {
		ended, s.told = s.told, openTransaction{}
		if time.Since(s.transaction.since) > patience {
			news, s.told = s.transaction, s.transaction
		}
	}
	return ended, news
}

// beginLocked starts the time without progress anew where there was nothing to do: before records are
// seen that are to be waited for.
func (s *partitionState) beginLocked() {
	if s.drainedLocked() {
		s.lastProgress = time.Now()
	}
}

// lagLocked counts to the high watermark, so that what waits behind an open
// transaction is seen.
func (s *partitionState) lagLocked() int64 {
	if !s.bounded {
		return 0
	}
	return max(0, s.bounds.high-s.waitingLocked())
}

// waitingLocked is the first offset that is not applied.
func (s *partitionState) waitingLocked() int64 {
	if s.assignedYet {
		return s.position
	}
	return max(s.groupOffset, s.bounds.start)
}

// drainedLocked reports that everything is applied that can be: the position is
// the last stable offset, or no visible record lies before that.
func (s *partitionState) drainedLocked() bool {
	return s.assignedYet && (s.position >= s.bounds.end || s.position == s.empty && s.bounds.end == s.emptyEnd)
}

// nothingVisible notes that a look at the log from position to end found no
// visible record: aborted transactions leave such tails in front of an open one.
func (s *partitionState) nothingVisible(position, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty, s.emptyEnd = position, end
}
