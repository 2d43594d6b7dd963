package relay

import (
	"context"
	"errors"
	"math"
	"time"
)

// sweepShare is the part of the time that sweeps may take: where many rows
// were deleted and cannot be cleaned up yet, looking past them is slow.
const sweepShare = 10

// scan is how far the term has looked.
type scan struct {
	high int64 // the forward scan is here

	sweeping  bool
	sweepPos  int64
	sweepTook time.Duration
	sweepAt   time.Time // when the next sweep begins
	notBefore time.Time // also when a notification asks for it

	// woken says that a message was stored since; one that the forward scan does
	// not find has a lower number, because its transaction took long.
	woken bool
}

func (s *scan) wake(notified bool) { s.woken = s.woken || notified }

// portioned asks the queue a question that takes longer the larger the portion is, and fits the portion to how long it
// took: well below the lease. It reports false where the question is to be asked again, for less.
func (t *term) portioned(question func() error) (answered bool, err error) {
	began := time.Now()
	err = t.ask(question)
	took, slow := time.Since(began), t.cfg.Lease/4
	switch {
	case errors.Is(err, ErrTooSlow):
		t.relay.failed(asFailure(err))
		if t.relay.portion.Halve() {
			return false, nil
		}
		return false, err
	case err != nil:
		return false, err
	case took > slow:
		t.relay.portion.Halve()
	case took < slow/4:
		t.relay.portion.Grow()
	}
	return true, nil
}

// discover looks for orders with messages, as far as memory allows, and loads them.
func (t *term) discover(ctx context.Context) (found bool, err error) {
	room := t.room()
	if room <= 0 {
		return false, nil
	}
	if len(t.revisit) > 0 {
		orders := t.revisit
		t.revisit = nil
		return true, t.load(ctx, orders)
	}
	s := &t.scan
	sighted, next, end, err := t.page(ctx, s.high, math.MaxInt64, min(room, t.cfg.PageSize))
	if err != nil {
		return false, err
	}
	s.high = next
	found = sighted > 0
	now := time.Now()
	if !s.sweeping {
		urgent := s.woken && sighted == 0 && now.After(s.notBefore)
		s.sweeping = urgent || now.After(s.sweepAt)
	}
	if end {
		s.woken = false
	}
	if !s.sweeping {
		return found, nil
	}
	if room = t.room(); room <= 0 {
		return found, nil
	}
	// Not as many as there is room for: most of what a sweep sees is known.
	sighted, next, end, err = t.page(ctx, s.sweepPos, s.high, t.cfg.PageSize)
	if err != nil {
		return false, err
	}
	s.sweepTook += time.Since(now)
	s.sweepPos = next
	if end {
		now = time.Now()
		s.notBefore = now.Add(sweepShare * s.sweepTook)
		s.sweepAt = now.Add(max(t.cfg.PollInterval, sweepShare*s.sweepTook))
		s.sweeping, s.sweepPos, s.sweepTook = false, 0, 0
	}
	return found || sighted > 0 && !end, nil
}

// room is how many more messages may be loaded. It is given in large pieces, as loading is cheaper so.
func (t *term) room() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	room := t.cfg.MaxMessages - t.lanes.messages
	if t.lanes.bytes >= t.cfg.MaxBytes || room < t.cfg.MaxMessages/8 {
		return 0
	}
	return room
}

// page looks at messages after..upTo and loads the orders that are not in memory. It returns
// how many it saw, up to where, and whether there are no more.
func (t *term) page(ctx context.Context, after, upTo int64, limit int) (sighted int, next int64, end bool, err error) {
	var seen []Sighting
	limit = min(limit, t.relay.portion.Size().Rows)
	answered, err := t.portioned(func() (err error) { seen, err = t.queue.Discover(ctx, after, upTo, limit); return err })
	if err != nil || len(seen) == 0 {
		return 0, after, answered, err
	}
	var orders []string
	wanted := map[string]bool{}
	t.mu.Lock()
	for _, s := range seen {
		if l := t.lanes.byOrder[s.OrderID]; l != nil {
			l.more = l.more || s.Seq > l.lastSeq
		} else if !wanted[s.OrderID] {
			wanted[s.OrderID] = true
			orders = append(orders, s.OrderID)
		}
	}
	t.mu.Unlock()
	if len(orders) > 0 {
		err = t.load(ctx, orders)
	}
	return len(seen), seen[len(seen)-1].Seq, len(seen) < limit, err
}

// load takes the first messages of orders that are not in memory, of so many orders as there should be room for. What there is
// no room for is loaded later.
func (t *term) load(ctx context.Context, orders []string) error {
	orders = t.unknown(orders)
	size := t.relay.portion.Size()
	affordable := min(size.Rows, max(1, int(float64(t.room())/t.perOrder)))
	if len(orders) > affordable {
		t.revisit = append(t.revisit, orders[affordable:]...)
		orders = orders[:affordable]
	}
	if len(orders) == 0 {
		return nil
	}
	t.mu.Lock()
	maxBytes := max(1, min(size.Bytes, t.cfg.MaxBytes-t.lanes.bytes))
	t.mu.Unlock()
	perOrder := min(t.cfg.PerOrder, size.Rows)
	counts := make(map[string]int, len(orders))
	loaded, cut := 0, false
	var last *lane
	answered, err := t.portioned(func() (err error) {
		cut, err = t.queue.Load(ctx, orders, perOrder, maxBytes, func(m *Message) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			// Orders may have more messages than those before had: what was read is worth keeping, up to a limit.
			if t.lanes.messages > 0 && (t.lanes.bytes+m.bytes() > t.cfg.MaxBytes || t.lanes.messages >= 2*t.cfg.MaxMessages) {
				return false
			}
			counts[m.OrderID]++
			loaded++
			last = t.lanes.add(m)
			last.more = last.more || counts[m.OrderID] == perOrder
			return true
		})
		return err
	})
	if err != nil {
		return err
	}
	if cut = cut || !answered; cut && last != nil {
		t.mu.Lock()
		last.more = true
		t.mu.Unlock()
	}
	if n := len(counts); n > 0 {
		t.perOrder += (float64(loaded)/float64(n) - t.perOrder) / 2
	}
	if cut {
		for _, id := range orders {
			if counts[id] == 0 {
				t.revisit = append(t.revisit, id)
			}
		}
	}
	return nil
}

// unknown returns each order once that is not in memory. The others are loaded again when they are done.
func (t *term) unknown(orders []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := make(map[string]bool, len(orders))
	fresh := make([]string, 0, len(orders))
	for _, id := range orders {
		if l := t.lanes.byOrder[id]; l != nil {
			l.more = true
		} else if !seen[id] {
			seen[id] = true
			fresh = append(fresh, id)
		}
	}
	return fresh
}
