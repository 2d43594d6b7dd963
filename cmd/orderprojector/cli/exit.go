package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes, the same for every command.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitDifference  = 3 // a comparison found a difference
	ExitNotFound    = 4
	ExitInterrupted = 130
)

// Error is a failure with its own exit code and, where there is one, a hint
// that says what the operator can do.
type Error struct {
	Code   int
	Err    error
	Advice string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the advice, "" for none.
func (e *Error) Hint() string { return e.Advice }

func usageError(format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

func notFoundError(format string, args ...any) error {
	return &Error{Code: ExitNotFound, Err: fmt.Errorf(format, args...)}
}

func differenceError(format string, args ...any) error {
	return &Error{Code: ExitDifference, Err: fmt.Errorf(format, args...)}
}

// runError marks what a command's own code returned. Everything that fails
// before (parsing, argument counts, required flags) is a usage error.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

func markRunErrors(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if err := run(c, args); err != nil {
				return runError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markRunErrors(sub)
	}
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(ctx context.Context, err error) int {
	var own *Error
	var fromRun runError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.Code
	case !errors.As(err, &fromRun):
		return ExitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	default:
		return ExitFailed
	}
}

func reportError(w io.Writer, err error, code int) {
	if code == ExitInterrupted {
		fmt.Fprintln(w, "interrupted")
		return
	}
	fmt.Fprintln(w, "error:", strings.ReplaceAll(err.Error(), "\n", "\n       "))
	hints := hintsFor(err)
	if len(hints) == 0 && code == ExitUsage {
		hints = []string{"see --help"}
	}
	for _, hint := range hints {
		fmt.Fprintln(w, "hint:", hint)
	}
}
