//go:build unix

package testenv

import (
	"testing"
	"time"
)

// Await calls condition until it is true, and fails the test after timeout
// with what condition said last. It is for state that cannot be waited for in
// another way, such as that of another process.
func Await(t testing.TB, timeout time.Duration, condition func() (ok bool, state string)) {
	t.Helper()
	began := time.Now()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	// What takes long is asked for less often: conditions cost the services work too.
	const firstPause, lastPause = 20 * time.Millisecond, 100 * time.Millisecond
	for pause := firstPause; ; pause = min(lastPause, pause*5/4) {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not so after %v: %s", time.Since(began).Round(time.Millisecond), state)
		case <-time.After(pause):
		}
	}
}
