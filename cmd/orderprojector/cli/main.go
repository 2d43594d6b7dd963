package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the command line and returns the exit code. The first SIGINT or
// SIGTERM cancels the command's context; the second exits at once.
func Main(args []string, env *Env) int {
	ctx, stop := interruptible(context.Background(), func() { os.Exit(ExitInterrupted) })
	defer stop()
	return Execute(ctx, args, env)
}

// Execute runs one command line under ctx, prints its error, if any, to
// env.Stderr, and returns the exit code.
func Execute(ctx context.Context, args []string, env *Env) int {
	root := NewRoot(env) //nolint:contextcheck // commands get it from ExecuteContext
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil {
		reportError(env.Stderr, err, code)
	}
	if env.flush != nil {
		env.flush()
	}
	return code
}

func interruptible(parent context.Context, force func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for seen := 0; ; seen++ {
			select {
			case <-done:
				return
			case <-signals:
				if seen > 0 {
					force()
				}
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
