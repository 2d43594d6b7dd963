// Package progress tells people how far long work has come: one line that is
// rewritten on a terminal, a plain line now and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	terminalInterval = 100 * time.Millisecond
	plainInterval    = 5 * time.Second
)

// Line is one line of progress. It is safe for concurrent use.
type Line struct {
	w        io.Writer
	terminal bool
	interval time.Duration
	now      func() time.Time

	mu    sync.Mutex
	shown time.Time // when the last text was written
	dirty bool      // the terminal's line holds a text
}

// New returns a line that is written to w, which is a terminal or not.
func New(w io.Writer, terminal bool) *Line {
	l := &Line{w: w, terminal: terminal, interval: plainInterval, now: time.Now}
	if terminal {
		l.interval = terminalInterval
	} else {
		l.shown = l.now() // short work stays silent
	}
	return l
}

// Due reports whether an Update would be shown; it spares making up texts
// that nobody sees.
func (l *Line) Due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Sub(l.shown) >= l.interval
}

// Update shows the text, unless the one before is too fresh. Errors of
// writing are ignored: progress is not the work.
func (l *Line) Update(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now.Sub(l.shown) < l.interval {
		return
	}
	l.shown = now
	l.write(text, false)
}

// Finish shows the last text and ends the line.
func (l *Line) Finish(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(text, true)
}

// Clear takes an unfinished text off the terminal, so that something else can
// be written.
func (l *Line) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dirty {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.dirty = false
	}
}

func (l *Line) write(text string, last bool) {
	switch {
	case !l.terminal:
		fmt.Fprintln(l.w, text)
	case last:
		fmt.Fprintf(l.w, "\r%s\x1b[K\n", text)
		l.dirty = false
	default:
		fmt.Fprintf(l.w, "\r%s\x1b[K", text)
		l.dirty = true
	}
}
