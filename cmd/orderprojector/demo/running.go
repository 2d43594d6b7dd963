package demo

import (
	"context"

	"github.com/orderprojector/orderprojector/kafkaio"
)

// program is one that this command line can run.
type program interface {
	Run(ctx context.Context) error
	HTTPAddr() string
}

// running is a program that was started.
type running struct {
	name     string
	program  program
	consumer *kafkaio.Consumer // nil for one that is no group member
	cancel   context.CancelFunc
	ended    chan struct{} // closed once it has stopped
	err      error         // why, once it has
}

func start(ctx context.Context, name string, p program) *running {
	// It is stopped by stop alone, so that everything ends in order.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: name, program: p, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = p.Run(ctx)
	}()
	return r
}

func (r *running) address() string { return r.program.HTTPAddr() }

// stop ends the program and returns its error.
func (r *running) stop() error {
	r.cancel()
	<-r.ended
	return r.err
}

// hasEnded reports whether it has ended by itself.
func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}
