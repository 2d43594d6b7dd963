package progress

import (
	"bytes"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		terminal bool
		want     string
	}{
		"terminal": {true, "\r1\x1b[K\r3\x1b[K\r\x1b[K\r9\x1b[K\n"},
		"plain":    {false, "3\n9\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			l := New(&out, c.terminal)
			now := time.Now()
			l.now = func() time.Time { return now }
			if l.Due() != c.terminal {
				t.Errorf("due at once: %t", l.Due())
			}
			l.Update("1")
			l.Update("2") // too soon
			now = now.Add(10 * time.Second)
			if !l.Due() {
				t.Error("not due after a while")
			}
			l.Update("3")
			l.Clear()
			l.Clear()
			l.Finish("9")
			if got := out.String(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
