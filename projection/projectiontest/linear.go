package projectiontest

import (
	"runtime"
	"testing"
	"time"
)

// work is what a call costs: the least of some runs, because a busy machine only adds to it.
type work struct {
	took      time.Duration
	allocated uint64
}

func (w *work) measure(run func()) {
	var before, after runtime.MemStats
	runtime.GC() // now, and not in the middle
	runtime.ReadMemStats(&before)
	began := time.Now()
	run()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if w.took == 0 {
		w.took, w.allocated = took, allocated
	}
	w.took, w.allocated = min(w.took, took), min(w.allocated, allocated)
}

// Linear compares the work for an input of n bytes and for one four times as large. Work that is linear, or that of
// sorting, grows four to seven times, and work of the square sixteen times. A measurement is repeated before it counts.
func Linear(t *testing.T, n int, prepare func(n int) (run func())) {
	t.Helper()
	const most, tries = 8, 8
	small, large := prepare(n), prepare(4*n)
	var one, four work
	for range tries {
		one.measure(small)
		four.measure(large)
		// Up to 20 ns a byte, new pages of memory cost more than the work. Below some hundred kilobytes, constants do.
		timely := four.took < max(5*time.Millisecond, time.Duration(4*n)*20) || four.took < most*one.took
		sparing := four.allocated < 1<<20 || four.allocated < most*one.allocated
		if timely && sparing {
			return
		}
	}
	t.Errorf("%d bytes take %v and %d bytes of memory; %d bytes take %v and %d bytes of memory",
		n, one.took, one.allocated, 4*n, four.took, four.allocated)
}
