// Command orderservice is an example of an order service: it changes orders in its
// own tables, and stores an event of each change in the outbox, in the same transaction.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/orderprojector/orderprojector/examples/orderservice/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Execute(ctx, os.Args[1:], command.Env{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv})
	stop()
	os.Exit(code)
}
