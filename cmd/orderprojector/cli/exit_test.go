package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"none":                 {context.Background(), nil, 0},
		"any":                  {context.Background(), runError{errors.New("x")}, 1},
		"before the command":   {context.Background(), errors.New("x"), 2},
		"usage":                {context.Background(), runError{usageError("x")}, 2},
		"difference":           {context.Background(), runError{fmt.Errorf("x: %w", differenceError("y"))}, 3},
		"not found":            {context.Background(), runError{notFoundError("x")}, 4},
		"interrupted":          {cancelled, runError{fmt.Errorf("x: %w", context.Canceled)}, 130},
		"cancelled by itself":  {context.Background(), runError{context.Canceled}, 1},
		"failed while stopped": {cancelled, runError{errors.New("x")}, 1},
	} {
		if got := exitCode(tc.ctx, tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"own":        {&Error{Code: 1, Err: errors.New("x"), Advice: "do y"}, "do y"},
		"old schema": {fmt.Errorf("a: %w", &pgstore.SchemaError{Have: 2, Want: 3}), "run: orderprojector migrate up"},
		"new schema": {&pgstore.SchemaError{Have: 4, Want: 3}, "--allow-newer-schema"},
		"grant":      {fmt.Errorf("a: %w", &pgconn.PgError{Code: "42501"}), "lacks a grant"},
		"password":   {&pgconn.PgError{Code: "28P01"}, "refused the password"},
		"kafka":      {fmt.Errorf("a: %w", refused), "nothing listens there"},
		"joined":     {errors.Join(errors.New("x"), &Error{Err: errors.New("y"), Advice: "do z"}), "do z"},
	} {
		if got := strings.Join(hintsFor(tc.err), "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if hints := hintsFor(errors.New("x")); len(hints) != 0 {
		t.Errorf("a hint for nothing: %v", hints)
	}
}
