// Package demo shows the program at work, and proves it: faulty traffic goes
// through a Kafka and a PostgreSQL of the demonstration's own, and what the projector made
// of it is compared, row by row and count by count, with an independent fold of
// the topic. Beside that the whole chain runs, from an order service's commands to points and
// notifications, and its ends are compared with what was put in.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// Config is what a demonstration can be told. The zero values of Orders and
// Partitions mean 10,000 and 4.
type Config struct {
	Orders     int
	Seed       uint64 // of the traffic
	Partitions int
	// Serve keeps everything up after the comparison, until ctx ends, and says
	// how to reach it.
	Serve bool
	// Logger gets the logs of all parts. Required.
	Logger *slog.Logger
	// Progress shows how far it has come. Required.
	Progress *progress.Line
	// PrintTimeline writes an order's history. Required.
	PrintTimeline func(io.Writer, pgstore.Timeline) error
	// Postgres is the directory of PostgreSQL's binaries, as for
	// embedded.PostgresConfig.
	Postgres string
}

// ErrDifferent means that the projection is not what the fold says.
var ErrDifferent = errors.New("the projection differs from the independent fold of the topic")

const stopTimeout = 10 * time.Second

// Run shows and proves. It writes what it finds to out and returns nil if
// everything agrees, ErrDifferent if anything differs.
func Run(ctx context.Context, config Config, out io.Writer) (err error) {
	if config.Orders == 0 {
		config.Orders = 10_000
	}
	if config.Partitions == 0 {
		config.Partitions = 4
	}
	began := time.Now()
	stream, err := generate.New(generate.Config{
		Seed: config.Seed, Orders: config.Orders, Rates: generate.Faulty(),
		Long: max(1, config.Orders/3), Amendments: 150, // a few that outgrow their row
	})
	if err != nil {
		return err
	}

	config.Progress.Update("starting Kafka and PostgreSQL")
	s, err := startServices(ctx, config)
	if err != nil {
		config.Progress.Clear()
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, s.stop(stopCtx))
	}()
	started := time.Since(began)

	traffic, err := s.projectTraffic(ctx, stream, config)
	config.Progress.Clear()
	if err != nil {
		return err
	}
	projected := time.Since(began) - started
	fmt.Fprintf(out, "Published %d records of %d orders to %s, with every fault that is known, and projected them\nmeanwhile: %.1f s (%.1f s to start Kafka and PostgreSQL %d before).\n\n",
		traffic.Records, traffic.Orders, topic, projected.Seconds(), started.Seconds(), s.postgres.Version())
	printFaults(out, traffic)

	config.Progress.Update("folding the topic once more, independently")
	v, err := s.verify(ctx)
	config.Progress.Clear()
	if err != nil {
		return err
	}
	printOutcomes(out, v)
	if err := s.printExamples(ctx, out, v, config.PrintTimeline); err != nil {
		return err
	}
	if !v.report.Equal() {
		printDifferences(out, v.report)
		return ErrDifferent
	}
	c, err := s.checkChain(ctx)
	if err != nil {
		return err
	}
	s.printChain(out, c)
	if len(c.wrong) > 0 {
		return ErrChain
	}
	printVerified(out, v, time.Since(began))

	if config.Serve {
		s.printAddresses(out)
		return s.serve(ctx)
	}
	return nil
}

// shopOrders is how many orders are placed with the order service.
func (c *Config) shopOrders() int { return max(1, min(c.Orders/20, 1000)) }

// projectTraffic publishes the stream, and gives commands to the order service, while everything runs; it returns
// when all of it has come through.
func (s *services) projectTraffic(ctx context.Context, stream *generate.Stream, config Config) (publish.Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	var sent published
	finished := make(chan error, 1)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		commands := make(chan error, 1)
		go func() { commands <- s.shop.Run(ctx, config.Seed, config.shopOrders()) }()
		summary, err := s.publisher.Run(ctx, stream, 0, sent.set)
		sent.set(summary)
		finished <- errors.Join(err, <-commands)
	})
	err := s.watch(ctx, &sent, finished, config)
	cancel()
	publishing.Wait()
	return sent.get(), err
}
