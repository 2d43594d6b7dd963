package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A lane is suspect when its next message failed among others. Suspects go apart from all other lanes, in
// groups, and each group over a connection of its own. Groups that fail again become smaller, down to one message.
// So the messages that shared a request with a bad one are published, and the bad one is found.
const (
	groupMost    = 256 // messages of suspects in one group
	groupBytes   = 1 << 20
	groupShrinks = 16 // a group that failed is divided by that
	groupsAside  = 4  // under way at once

	// enoughStrikes is how often in a row the connection has to be closed at a message before the message is blocked.
	enoughStrikes = 6
)

// suspicion is what is held against a lane's next message.
type suspicion struct {
	group   int // the most messages in its next group; 0 where the lane is no suspect
	strikes int // how often in a row the connection was closed at the message alone
	// acksThen is how many messages of all lanes were acknowledged before the last strike.
	acksThen int64
}

// suspect takes note that a lane's next message failed among others.
func (s *lanes) suspect(l *lane) { l.suspicion = suspicion{group: groupMost, acksThen: s.acks} }

// takeGroup returns suspects that are due, for one group, or none. Those under the least suspicion come first, small ones before large ones.
func (s *lanes) takeGroup(now time.Time) (group []*lane) {
	if s.groups >= groupsAside {
		return nil
	}
	var due []*lane
	for _, l := range s.ready {
		if l.group > 0 && !l.retryAt.After(now) {
			due = append(due, l)
		}
	}
	slices.SortStableFunc(due, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(b.group, a.group), cmp.Compare(a.waiting[0].bytes(), b.waiting[0].bytes()))
	})
	var bytes int64
	taken := map[*lane]bool{}
	for _, l := range due {
		bytes += l.waiting[0].bytes()
		if len(group) > 0 && (len(group) == l.group || bytes > groupBytes) {
			break
		}
		group = append(group, l)
		taken[l] = true
	}
	if len(group) > 0 {
		s.groups++
		s.ready = slices.DeleteFunc(s.ready, func(l *lane) bool { return taken[l] })
	}
	return group
}

// strike counts that the connection was closed at a lane's next message alone. A strike counts only where another order's
// message was acknowledged since the last one, if there is another order with a message that is not alone as well. Otherwise
// the whole topic may be out of order.
func (s *lanes) strike(l *lane) (enough bool) {
	if s.acks == l.acksThen {
		for _, other := range s.byOrder {
			if other != l && len(other.waiting) > 0 && other.group != 1 {
				return false
			}
		}
	}
	l.strikes++
	l.acksThen = s.acks
	return l.strikes >= enoughStrikes
}

// sendGroup publishes the next messages of suspects.
func (t *term) sendGroup(group []*lane, messages []*Message) {
	records := make([]Record, 0, len(group))
	for i := 0; i < len(group); {
		record, err := t.cfg.Encoder.Encode(messages[i])
		if err == nil {
			records = append(records, record)
			i++
			continue
		}
		t.mu.Lock()
		t.lanes.ended(group[i])
		t.refuse(messages[i], err)
		t.mu.Unlock()
		group, messages = slices.Delete(group, i, i+1), slices.Delete(messages, i, i+1)
	}
	if len(records) == 0 {
		t.mu.Lock()
		t.lanes.groups--
		t.mu.Unlock()
		return
	}
	t.topic.PublishApart(records, func(errs []error) { t.groupDone(group, messages, errs) })
}

// groupDone takes note of what became of the messages of a group.
func (t *term) groupDone(group []*lane, messages []*Message, errs []error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.lanes.groups--
	for i, l := range group {
		t.lanes.ended(l)
		if errs[i] == nil {
			t.acknowledged(l, messages[i])
			t.lanes.enqueue(l)
		} else {
			t.judge(l, messages[i], len(group), errs[i])
		}
	}
	t.mu.Unlock()
	t.wake()
}

// judge decides what becomes of a suspect that failed in a group of so many. The caller holds the lock.
func (t *term) judge(l *lane, m *Message, group int, err error) {
	var refusal *Refusal
	var fault *Fault
	l.trouble = err.Error()
	switch isRefusal, isFault := errors.As(err, &refusal), errors.As(err, &fault); {
	case (isRefusal || isFault) && group > 1: // it may be the fault of another one
		l.group = max(1, group/groupShrinks)
	case isRefusal:
		t.refuse(m, err)
		return
	case isFault && fault.Closed:
		if t.lanes.strike(l) {
			t.refuse(m, &Refusal{Reason: Refused, Err: fmt.Errorf("the broker, or a proxy before it, closes the connection at this message of %d bytes: "+
				"%d times in a row while the message was alone on a connection, and requests without it were answered; "+
				"compare socket.request.max.bytes of the brokers: %w", len(m.Payload), l.strikes, fault.Err)})
			return
		}
		t.pause(l)
	default:
		l.strikes = 0
		t.pause(l)
		if !isFault {
			t.failedAside = asBrokerFailure(err)
		}
	}
	t.lanes.ready = append(t.lanes.ready, l)
}
