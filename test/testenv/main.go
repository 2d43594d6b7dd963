//go:build unix

package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// shared is what the tests of this binary have in common.
var shared struct {
	mainRuns bool
	kafka    lazy[[]string]
	postgres lazy[string]
	template lazy[string]
	programs programs
}

// Main runs a package's tests and then ends the shared services.
func Main(m *testing.M) {
	shared.mainRuns = true
	code := m.Run()
	for _, stop := range []func() error{
		shared.template.close, shared.postgres.close, shared.kafka.close, shared.programs.close,
	} {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "ending what the tests shared:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// lazy is a value that the first test to ask for it makes.
type lazy[T any] struct {
	mu    sync.Mutex
	made  bool
	value T
	err   error
	stop  func() error
}

func (l *lazy[T]) get(t testing.TB, make func(context.Context) (T, func() error, error)) T {
	t.Helper()
	if !shared.mainRuns {
		t.Fatal("this package's TestMain must call testenv.Main, which ends the shared services")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made {
		// Not the test's context: the value is for all tests.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		l.value, l.stop, l.err = make(ctx)
		l.made = true
	}
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.value
}

func (l *lazy[T]) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop == nil {
		return nil
	}
	return l.stop()
}

// needs says that a test needs more than this process, so that -short leaves
// it out.
func needs(t testing.TB, what string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this test needs %s", what)
	}
}
