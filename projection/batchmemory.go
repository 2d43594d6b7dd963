package projection

import (
	"slices"
	"strings"
)

// batchMemory is the memory of one batch at a time, used again for the next: making it anew
// for each was a fifth of all that the program allocated.
type batchMemory struct {
	items  []item
	byID   map[string]int // index into works
	works  []work
	sorted []*work
	refs   []*item // the works' items, one order's behind another's
}

func newBatchMemory() *batchMemory { return &batchMemory{byID: make(map[string]int)} }

// group makes one work for each order of the items, sorted by order ID, with its items in their order.
func (m *batchMemory) group(items []item) []*work {
	m.forgetWorks()
	counts := make([]int, 0, len(items))
	for i := range items {
		id := items[i].orderID
		if id == "" || items[i].held {
			continue
		}
		at, known := m.byID[id]
		if !known {
			at = len(m.works)
			m.byID[id] = at
			m.works, counts = append(m.works, work{orderID: id}), append(counts, 0)
		}
		items[i].work = int32(at)
		counts[at]++
	}
	m.refs = slices.Grow(m.refs, len(items))[:len(items)]
	begin := 0
	for i := range m.works {
		w := &m.works[i]
		w.items = m.refs[begin : begin : begin+counts[i]]
		begin += counts[i]
		m.sorted = append(m.sorted, w)
	}
	for i := range items {
		if it := &items[i]; it.orderID != "" && !it.held {
			w := &m.works[it.work]
			w.items = append(w.items, it)
		}
	}
	slices.SortFunc(m.sorted, func(a, b *work) int { return strings.Compare(a.orderID, b.orderID) })
	return m.sorted
}

func (m *batchMemory) forgetWorks() {
	clear(m.byID)
	clear(m.works)
	clear(m.sorted)
	clear(m.refs)
	m.works, m.sorted, m.refs = m.works[:0], m.sorted[:0], m.refs[:0]
}

// forget lets go of the records and rows of a batch.
func (m *batchMemory) forget() {
	m.forgetWorks()
	clear(m.items)
	m.items = m.items[:0]
}

// batchMemories are the memories that are free.
type batchMemories chan *batchMemory

func (free batchMemories) take() *batchMemory {
	select {
	case m := <-free:
		return m
	default:
		return newBatchMemory()
	}
}

func (free batchMemories) giveBack(m *batchMemory) {
	m.forget()
	select {
	case free <- m:
	default:
	}
}
