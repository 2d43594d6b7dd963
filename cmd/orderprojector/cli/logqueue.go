package cli

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	logQueueBytes = 1 << 20
	// logFlushLimit is how long the end of the program waits for a reader of what is still queued.
	logFlushLimit = time.Second
)

// logQueue is an io.Writer that never blocks: a goroutine writes what is queued, in order. Because a pipe or a
// terminal that nobody reads blocks its writer, the program would otherwise stand still with its log.
// What does not fit is dropped and counted.
type logQueue struct {
	out     io.Writer
	limit   int
	dropped func(lines int) // writes to out that lines were dropped

	mu      sync.Mutex
	queued  bytes.Buffer
	missing int           // lines dropped since the queue was last taken
	busy    bool          // the goroutine runs
	idle    chan struct{} // closed when the goroutine ends
}

func newLogQueue(out io.Writer, limit int, dropped func(lines int)) *logQueue {
	return &logQueue{out: out, limit: limit, dropped: dropped}
}

// Write implements io.Writer. Each call is one line, which is queued or dropped as a whole.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// After the first line that does not fit, none is taken: the place of the gap is where the count is written.
	if q.missing > 0 || q.queued.Len()+len(line) > q.limit {
		q.missing++
	} else {
		q.queued.Write(line)
	}
	if !q.busy {
		q.busy, q.idle = true, make(chan struct{})
		go q.drain()
	}
	return len(line), nil
}

// drain writes what is queued until nothing is.
func (q *logQueue) drain() {
	var lines bytes.Buffer
	for {
		lines.Reset()
		q.mu.Lock()
		if q.queued.Len() == 0 && q.missing == 0 {
			q.busy = false
			close(q.idle)
			q.mu.Unlock()
			return
		}
		lines, q.queued = q.queued, lines
		missing := q.missing
		q.missing = 0
		q.mu.Unlock()
		// A reader that went away is nobody's concern here.
		_, _ = q.out.Write(lines.Bytes())
		if missing > 0 {
			q.dropped(missing)
		}
	}
}

// flush waits until everything is written, within a limit.
func (q *logQueue) flush(limit time.Duration) {
	q.mu.Lock()
	busy, idle := q.busy, q.idle
	q.mu.Unlock()
	if !busy {
		return
	}
	select {
	case <-idle:
	case <-time.After(limit):
	}
}
