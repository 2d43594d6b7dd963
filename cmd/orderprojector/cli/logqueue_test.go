package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// stuckWriter blocks each write until it is released.
type stuckWriter struct {
	entered chan struct{}
	release chan struct{}
	written bytes.Buffer
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	select {
	case w.entered <- struct{}{}:
	default:
	}
	<-w.release
	return w.written.Write(p)
}

func TestLogQueueDropsWhatDoesNotFitAndSaysSo(t *testing.T) {
	t.Parallel()
	w := &stuckWriter{entered: make(chan struct{}, 1), release: make(chan struct{})}
	q := newLogQueue(w, 30, func(lines int) { fmt.Fprintf(&w.written, "%d dropped\n", lines) })
	line := func(i int) string { return fmt.Sprintf("line %04d\n", i) } // ten bytes
	fmt.Fprint(q, line(0))
	<-w.entered // the queue is empty, and its writer hangs
	for i := 1; i <= 3; i++ {
		fmt.Fprint(q, line(i))
	}
	for i := 4; i <= 9; i++ {
		fmt.Fprint(q, line(i))
	}
	began := time.Now()
	q.flush(50 * time.Millisecond)
	if waited := time.Since(began); waited < 50*time.Millisecond || waited > 5*time.Second {
		t.Errorf("flushing to nobody took %s", waited)
	}
	close(w.release)
	q.flush(time.Minute)
	fmt.Fprint(q, line(10))
	q.flush(time.Minute)
	want := line(0) + line(1) + line(2) + line(3) + "6 dropped\n" + line(10)
	if got := w.written.String(); got != want {
		t.Errorf("written:\n%swanted:\n%s", got, want)
	}
}

func TestLogQueueKeepsEverythingInOrderForAReaderWhoReads(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	text := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(read)
		text <- string(all)
	}()
	q := newLogQueue(write, logQueueBytes, func(lines int) { t.Errorf("%d lines were dropped", lines) })
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintln(q, i)
		fmt.Fprintln(&want, i)
	}
	q.flush(time.Minute)
	_ = write.Close()
	if got := <-text; got != want.String() {
		t.Errorf("%d bytes were read, %d written", len(got), want.Len())
	}
}
