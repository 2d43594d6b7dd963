package cli

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// Not parallel: it signals its own process.
func TestTheFirstSignalStopsAndTheSecondForces(t *testing.T) {
	forced := make(chan struct{}, 1)
	ctx, stop := interruptible(context.Background(), func() { forced <- struct{}{} })
	defer stop()
	for _, step := range []struct {
		signal syscall.Signal
		seen   <-chan struct{}
	}{{syscall.SIGTERM, ctx.Done()}, {syscall.SIGINT, forced}} {
		if err := syscall.Kill(syscall.Getpid(), step.signal); err != nil {
			t.Fatal(err)
		}
		select {
		case <-step.seen:
		case <-time.After(10 * time.Second):
			t.Fatalf("%v has no effect", step.signal)
		}
	}
}
