package kafkaio_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// patience is how long a test waits for something that must happen.
const patience = 20 * time.Second

// fakeHandler keeps what it is given, like a database that several members
// share: per partition the watermark and the values below it.
type fakeHandler struct {
	onAssign func(ctx context.Context, a projection.Assignment) error
	onHandle func(ctx context.Context, records []projection.Record) error
	onCheck  func(ctx context.Context, tp projection.TopicPartition) error

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced at every change
	watermarks  map[string]int64
	records     map[int32][]projection.Record
	assignments []projection.Assignment
	skips       []int64
	handling    int
	closed      int
}

func newFakeHandler() *fakeHandler {
	return &fakeHandler{
		changed:    make(chan struct{}),
		watermarks: make(map[string]int64),
		records:    make(map[int32][]projection.Record),
	}
}

func watermarkKey(tp projection.TopicPartition) string { return fmt.Sprintf("%s/%s", tp.TopicID, tp) }

func (h *fakeHandler) update(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until cond, which is called with the handler locked, is true.
func (h *fakeHandler) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		ok, changed := cond(), h.changed
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("waited too long for: %s\nrecords: %v\nassignments: %v", what, h.valuesLocked(), h.assignments)
		}
	}
}

func (h *fakeHandler) valuesLocked() map[int32][]string {
	all := make(map[int32][]string)
	for partition, records := range h.records {
		for _, r := range records {
			if !r.Control {
				all[partition] = append(all[partition], string(r.Value))
			}
		}
	}
	return all
}

func (h *fakeHandler) values(partition int32) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.valuesLocked()[partition]
}

// awaitValues waits until a partition got exactly these values, each once.
func (h *fakeHandler) awaitValues(t *testing.T, partition int32, want ...string) {
	t.Helper()
	h.await(t, fmt.Sprintf("values %v of partition %d", want, partition), func() bool {
		return slices.Equal(h.valuesLocked()[partition], want)
	})
}

func (h *fakeHandler) Assign(ctx context.Context, a projection.Assignment) (projection.PartitionHandler, projection.Start, error) {
	if h.onAssign != nil {
		if err := h.onAssign(ctx, a); err != nil {
			return nil, projection.Start{}, err
		}
	}
	var start projection.Start
	h.update(func() {
		h.assignments = append(h.assignments, a)
		key := watermarkKey(a.TopicPartition)
		watermark, known := h.watermarks[key]
		if !known {
			watermark = a.LogStart
			h.watermarks[key] = watermark
		}
		start = projection.Start{Offset: watermark, Watermark: watermark, CommitAbove: a.Committed}
		if a.Committed != projection.NoOffset {
			start.Offset = min(watermark, a.Committed)
		}
	})
	return &fakePartition{h: h, tp: a.TopicPartition}, start, nil
}

type fakePartition struct {
	h  *fakeHandler
	tp projection.TopicPartition
}

func (p *fakePartition) Handle(ctx context.Context, records []projection.Record) error {
	h := p.h
	h.update(func() { h.handling++ })
	defer h.update(func() { h.handling-- })
	if h.onHandle != nil {
		if err := h.onHandle(ctx, records); err != nil {
			return err
		}
	}
	h.update(func() {
		key := watermarkKey(p.tp)
		for _, r := range records {
			if r.Offset < h.watermarks[key] {
				continue // counted already
			}
			h.records[p.tp.Partition] = append(h.records[p.tp.Partition], r)
			h.watermarks[key] = r.Offset + 1
		}
	})
	return nil
}

func (p *fakePartition) Check(ctx context.Context) error {
	if p.h.onCheck != nil {
		return p.h.onCheck(ctx, p.tp)
	}
	return nil
}

func (p *fakePartition) Skip(_ context.Context, to int64) error {
	p.h.update(func() {
		p.h.skips = append(p.h.skips, to)
		p.h.watermarks[watermarkKey(p.tp)] = to
	})
	return nil
}

func (p *fakePartition) Close() { p.h.update(func() { p.h.closed++ }) }

// eventually waits for a condition that nothing signals, such as what a broker says.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

func (h *fakeHandler) assigned() []projection.Assignment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.assignments)
}
