//go:build unix

// Command services keeps an Apache Kafka broker or a PostgreSQL server running
// for work by hand: `make kafka`, `make postgres`. It prints the environment
// variable that makes orderprojector and its tests use the service, and ends
// with it on SIGINT or SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: services kafka|postgres")

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	switch args[0] {
	case "kafka":
		return keepKafka(ctx)
	case "postgres":
		return keepPostgres(ctx)
	default:
		return errUsage
	}
}

const stopTimeout = 20 * time.Second

func keepKafka(ctx context.Context) error {
	fmt.Fprintln(os.Stderr, "starting Apache Kafka (the first time, it is fetched)")
	k, err := testenv.RunKafka(ctx, testenv.KafkaConfig{Settings: map[string]string{"auto.create.topics.enable": "true"}})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "its log is %s; Ctrl-C ends it and removes its data\n", k.LogFile())
	fmt.Println("KAFKA_BOOTSTRAP_SERVERS=" + strings.Join(k.Brokers(), ","))
	select {
	case <-ctx.Done():
	case <-k.Done():
		err = fmt.Errorf("the broker ended by itself; see %s", k.LogFile())
		return err // its log is kept
	}
	stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	k.Stop(stopping)
	return k.Close()
}

func keepPostgres(ctx context.Context) error {
	p, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "its log is %s; Ctrl-C ends it and removes its data\n", p.LogFile())
	fmt.Println("DATABASE_URL=" + p.DSN())
	select {
	case <-ctx.Done():
	case <-p.Done():
		return fmt.Errorf("the server ended by itself; see %s", p.LogFile())
	}
	stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return p.Stop(stopping)
}
