//go:build unix

package testenv_test

import (
	"sync"
	"testing"
)

// recorder is a test that counts its errors instead of failing.
type recorder struct {
	testing.TB

	mu sync.Mutex
	n  int
}

func (r *recorder) Errorf(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
}

func (r *recorder) errors() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}
