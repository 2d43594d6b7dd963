package kafkaio

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// A feed holds what was fetched of one partition until its worker takes it.
// The poll loop fills it, one worker drains it.
type feed struct {
	tp    projection.TopicPartition
	ready chan struct{} // capacity 1: something is there to take

	mu     sync.Mutex
	chunks [][]*kgo.Record
	bytes  int64
	failed error // why fetching stopped; delivered behind the buffered records
	paused bool
}

func newFeed(tp projection.TopicPartition) *feed {
	return &feed{tp: tp, ready: make(chan struct{}, 1)}
}

func (f *feed) signal() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// reset drops everything that was fetched before a seek.
func (f *feed) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chunks, f.bytes, f.failed, f.paused = nil, 0, nil, false
}

func (f *feed) push(records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	var bytes int64
	for _, r := range records {
		bytes += fetchedBytes(r)
	}
	f.mu.Lock()
	f.chunks = append(f.chunks, records)
	f.bytes += bytes
	f.mu.Unlock()
	f.signal()
}

// fail says that the poll loop stopped fetching the partition. Only the first
// reason is kept; a seek clears it.
func (f *feed) fail(err error) {
	f.mu.Lock()
	if f.failed == nil {
		f.failed = err
	}
	f.mu.Unlock()
	f.signal()
}

// take removes up to maxRecords and, unless the first record alone is larger,
// up to maxBytes. It appends them to batch, whose memory is used again.
func (f *feed) take(batch []projection.Record, maxRecords int, maxBytes int64) []projection.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	available := 0
	for _, chunk := range f.chunks {
		available += len(chunk)
	}
	if available == 0 {
		return batch
	}
	batch = slices.Grow(batch, min(available, maxRecords))
	var bytes int64
	for len(f.chunks) > 0 {
		chunk := f.chunks[0]
		taken := 0
		for _, r := range chunk {
			size := fetchedBytes(r)
			if len(batch) == maxRecords || (len(batch) > 0 && bytes+size > maxBytes) {
				break
			}
			batch = append(batch, toRecord(f.tp, r))
			bytes += size
			taken++
		}
		if taken < len(chunk) {
			clear(chunk[:taken]) // the rest of the chunk must not keep taken records alive
			f.chunks[0] = chunk[taken:]
			break
		}
		f.chunks[0] = nil
		f.chunks = f.chunks[1:]
	}
	f.bytes -= bytes
	if len(f.chunks) > 0 || f.failed != nil {
		f.signal()
	}
	return batch
}

// failure returns why fetching stopped, once no records are left before it.
func (f *feed) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.chunks) > 0 {
		return nil
	}
	return f.failed
}

// head returns the timestamp of the next record, if one is buffered.
func (f *feed) head() (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.chunks) == 0 {
		return time.Time{}, false
	}
	return f.chunks[0][0].Timestamp, true
}

func (f *feed) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.chunks) == 0
}
