package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/httpapi"
)

// The phases in which nothing is done, as /healthz/consumption tells them.
const (
	phaseNew      = "not started"
	phaseWaiting  = "waiting for the database"
	phaseStopping = "stopping"
)

// lastStep is what each of the last steps of a shutdown gets where nothing is left of the grace.
const lastStep = 100 * time.Millisecond

// lifecycle is what every program of this package has: an HTTP listener, and a phase.
type lifecycle struct {
	logger   *slog.Logger
	listener net.Listener
	server   *httpapi.Server
	phase    atomic.Value // string: why nothing is done; "" while the program works
	grace    time.Duration
	stopBy   atomic.Pointer[time.Time] // the end of the shutdown grace; nil until the program is told to stop
}

func newLifecycle(logger *slog.Logger, grace time.Duration) *lifecycle {
	l := &lifecycle{logger: logger, grace: grace}
	l.phase.Store(phaseNew)
	return l
}

// run serves while work works, until ctx ends or either fails; then work ends first, and HTTP after it.
func (l *lifecycle) run(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	markStopping := context.AfterFunc(ctx, func() {
		stopBy := time.Now().Add(l.grace)
		l.stopBy.Store(&stopBy)
		l.phase.Store(phaseStopping)
	})
	defer markStopping()

	served := make(chan error, 1)
	go func() { served <- l.server.Serve(l.listener) }()
	l.logger.Info("listening", "address", l.HTTPAddr())

	worked := make(chan error, 1)
	go func() { worked <- work(ctx) }()

	var err error
	select {
	case err = <-worked:
	case err = <-served: // without health and metrics nobody sees what happens: stop
		cancel()
		err = errors.Join(err, <-worked)
	}
	l.phase.Store(phaseStopping)
	shutdownCtx, done := context.WithTimeout(context.WithoutCancel(ctx), l.within(httpGrace))
	defer done()
	if shutdownErr := l.server.Shutdown(shutdownCtx); shutdownErr != nil {
		l.logger.Warn("HTTP requests were cut off", "error", shutdownErr)
	}
	if err == nil {
		l.logger.Info("stopped")
	}
	return err
}

// within shortens a limit so that the last steps of a shutdown end with its grace.
func (l *lifecycle) within(limit time.Duration) time.Duration {
	if stopBy := l.stopBy.Load(); stopBy != nil {
		limit = min(limit, max(lastStep, time.Until(*stopBy)))
	}
	return limit
}

// awaitDatabase waits until the database answers, without end. What check finds wrong with it for good does
// not heal by waiting.
func (l *lifecycle) awaitDatabase(ctx context.Context, check func(context.Context) error, forGood func(error) bool) error {
	l.phase.CompareAndSwap(phaseNew, phaseWaiting)
	pause := firstRetryPause
	for {
		err := check(ctx)
		if err == nil || forGood(err) {
			return err
		}
		if ctx.Err() == nil {
			l.logger.Warn("waiting for the database", "error", err, "hint", Hint(err), "again_in", pause.String())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetryPause)
	}
}

// alive is the check that a program which stops does not pass.
func (l *lifecycle) alive(context.Context) error {
	if l.phase.Load() == phaseStopping {
		return errors.New(phaseStopping)
	}
	return nil
}

// idle says why nothing is done, or nil.
func (l *lifecycle) idle() error {
	if phase := l.phase.Load().(string); phase != "" {
		return errors.New(phase)
	}
	return nil
}

// close closes the listener; after run it is closed already.
func (l *lifecycle) close() {
	if l.listener != nil {
		_ = l.listener.Close()
	}
}

// HTTPAddr is the address that the program listens on, also when a free port was asked for.
func (l *lifecycle) HTTPAddr() string { return l.listener.Addr().String() }
