// Package command is the order service's command line.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// timeout bounds one command line. Each statement has a shorter one of its own.
const timeout = 30 * time.Second

// Env is what the commands may use of the process they run in.
type Env struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Execute runs one command line and returns the exit code: 0 when it was carried out, now or
// before; 1 when it was refused or failed; 2 when it is not a command.
func Execute(ctx context.Context, args []string, env Env) int {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	root := newRoot(env) //nolint:contextcheck // commands get it from ExecuteContext
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(env.Stderr, "error:", err)
	var hint interface{ Hint() string }
	if errors.As(err, &hint) && hint.Hint() != "" {
		fmt.Fprintln(env.Stderr, "hint:", hint.Hint())
	}
	var failed *failedError
	if errors.As(err, &failed) {
		return exitFailed
	}
	return exitUsage
}

// failedError marks what failed when a command was carried out. Everything before is a usage error.
type failedError struct{ error }

func (e *failedError) Unwrap() error { return e.error }

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "orderservice",
		Short: "An example of an order service: orders in its own tables, events through the outbox",
		Long: `orderservice changes orders in its own tables (schema orderservice) and stores an event of each
change in the outbox, in the same transaction. "orderprojector run relay" publishes them.

DATABASE_URL says where. The tables are made when they are not there.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	for _, spec := range specs() {
		root.AddCommand(newCommand(env, spec))
	}
	return root
}

// do carries a command out and says what it made of the order.
func do(ctx context.Context, env Env, c orders.Command) error {
	cfg, err := pgxpool.ParseConfig(env.Getenv("DATABASE_URL"))
	if err != nil { // its message may quote the password
		return errors.New("DATABASE_URL is not a PostgreSQL connection string")
	}
	if env.Getenv("DATABASE_URL") == "" && env.Getenv("PGHOST") == "" {
		return errors.New("DATABASE_URL is not set")
	}
	cfg.MaxConns = 1
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	for name, value := range map[string]string{
		"application_name": "orderservice", "statement_timeout": "10000", "lock_timeout": "5000", "idle_in_transaction_session_timeout": "10000",
	} {
		if _, given := cfg.ConnConfig.RuntimeParams[name]; !given {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return &failedError{fmt.Errorf("opening the database: %w", err)}
	}
	defer pool.Close()
	service := orders.New(pool)
	if err := service.EnsureSchema(ctx); err != nil {
		return &failedError{err}
	}
	result, err := service.Do(ctx, c)
	if err != nil {
		return &failedError{err}
	}
	if result.Repeated {
		fmt.Fprintf(env.Stdout, "order %s: already carried out under this idempotency key, as version %d (event %s); nothing was changed\n",
			result.OrderID, result.Version, result.EventID)
		return nil
	}
	fmt.Fprintf(env.Stdout, "order %s: version %d (event %s)\n", result.OrderID, result.Version, result.EventID)
	return nil
}
