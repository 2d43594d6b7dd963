package relay

import "time"

// lane is an order with messages in memory, of which one at most is in flight.
type lane struct {
	orderID  string
	waiting  []*Message // by version; the first is in flight, or the next to go
	inFlight bool
	acked    int   // acknowledged, and not removed from the queue yet
	lastSeq  int64 // the newest message in memory, ever
	more     bool  // there are messages behind those in memory

	// What is known of the next message.
	suspicion
	triedAt  time.Time // when the message was sent first; zero before
	trouble  string    // its last failure
	failures int       // in a row
	retryAt  time.Time // after one
}

func (l *lane) empty() bool { return len(l.waiting) == 0 && l.acked == 0 }

// lanes holds what is in memory. Its users lock it.
type lanes struct {
	byOrder  map[string]*lane
	messages int
	bytes    int64
	inFlight int
	groups   int     // of suspects, under way
	acks     int64   // messages that were acknowledged, ever
	ready    []*lane // have something to send, and nothing in flight
	acked    []*Message
	held     []*Message // acknowledged, but somebody else holds the rows
	heldTill time.Time  // when to try again
	refused  []Blocked
}

// heldPause is after how long messages are tried again that somebody holds.
const heldPause = time.Second

// add puts a loaded message behind those of its order.
func (s *lanes) add(m *Message) *lane {
	l := s.byOrder[m.OrderID]
	if l == nil {
		l = &lane{orderID: m.OrderID}
		s.byOrder[m.OrderID] = l
		s.ready = append(s.ready, l)
	}
	l.waiting = append(l.waiting, m)
	if len(l.waiting) == 1 && m.Tried {
		s.suspect(l)
	}
	l.lastSeq = max(l.lastSeq, m.Seq)
	s.messages++
	s.bytes += m.bytes()
	return l
}

// start takes the lane's next message for sending.
func (s *lanes) start(l *lane) *Message {
	l.inFlight = true
	s.inFlight++
	if l.triedAt.IsZero() {
		l.triedAt = time.Now()
	}
	return l.waiting[0]
}

// enqueue makes a lane ready that has a message to send.
func (s *lanes) enqueue(l *lane) {
	if len(l.waiting) > 0 {
		s.ready = append(s.ready, l)
	}
}

// ended takes note that the lane's message is no longer in flight.
func (s *lanes) ended(l *lane) {
	l.inFlight = false
	s.inFlight--
}

// acknowledged moves the lane's message to those that can be removed.
func (s *lanes) acknowledged(l *lane) {
	s.acked = append(s.acked, l.waiting[0])
	l.waiting = l.waiting[1:]
	l.acked++
	l.suspicion, l.triedAt, l.trouble, l.failures = suspicion{}, time.Time{}, "", 0
	s.acks++
	if len(l.waiting) > 0 && l.waiting[0].Tried {
		s.suspect(l)
	}
}

// oldest returns the message that was tried and waits longest for its acknowledgement, and how many orders are suspects.
func (s *lanes) oldest() (w Waiting, suspects int) {
	for _, l := range s.byOrder {
		if l.group > 0 {
			suspects++
		}
		if len(l.waiting) > 0 && !l.triedAt.IsZero() && (w.Message == nil || l.triedAt.Before(w.Since)) {
			w = Waiting{Message: l.waiting[0], Since: l.triedAt, Trouble: l.trouble}
		}
	}
	return w, suspects
}

// takeAcked returns what can be removed now.
func (s *lanes) takeAcked(now time.Time) []*Message {
	acked := s.acked
	s.acked = nil
	if len(s.held) > 0 && now.After(s.heldTill) {
		acked = append(acked, s.held...)
		s.held = nil
	}
	return acked
}

// keep puts those that are left aside, and returns the others.
func (s *lanes) keep(messages []*Message, left []int64) (gone []*Message) {
	if len(left) == 0 {
		return messages
	}
	still := make(map[int64]bool, len(left))
	for _, seq := range left {
		still[seq] = true
	}
	for _, m := range messages {
		if still[m.Seq] {
			s.held = append(s.held, m)
		} else {
			gone = append(gone, m)
		}
	}
	s.heldTill = time.Now().Add(heldPause)
	return gone
}

// removed forgets messages that the queue no longer has, and returns orders that have more.
func (s *lanes) removed(messages []*Message) (more []string) {
	for _, m := range messages {
		l := s.byOrder[m.OrderID]
		l.acked--
		s.messages--
		s.bytes -= m.bytes()
		if l.empty() {
			delete(s.byOrder, m.OrderID)
			if l.more {
				more = append(more, m.OrderID)
			}
		}
	}
	return more
}

// forget drops a blocked order: its messages stay in the queue.
func (s *lanes) forget(orderID string) {
	l := s.byOrder[orderID]
	for _, m := range l.waiting {
		s.messages--
		s.bytes -= m.bytes()
	}
	delete(s.byOrder, orderID)
}

// takeReady returns the lanes that are due and no suspects, and keeps the others.
func (s *lanes) takeReady(now time.Time) (due []*lane) {
	later := s.ready[:0:0]
	for _, l := range s.ready {
		if l.group > 0 || l.retryAt.After(now) {
			later = append(later, l)
		} else {
			due = append(due, l)
		}
	}
	s.ready = later
	return due
}

// nextDue returns when the first of the ready lanes is due; in a day where there is none.
func (s *lanes) nextDue() time.Time {
	next := time.Now().Add(24 * time.Hour)
	for _, l := range s.ready {
		if l.retryAt.Before(next) {
			next = l.retryAt
		}
	}
	return next
}
