//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// The pools have one connection each, and everything that wants one is on: three partitions, the sweep, the copies,
// metrics and health. Nobody may wait for a second connection while holding one (B30).
func TestFailurePoolOfOneConnection(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 3})
	s.watchRows()
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 3)
	s.exec(`ALTER TABLE order_rows ADD CONSTRAINT no_beast CHECK (total_minor <> 666)`)
	s.programDSN = s.dsn + "&pool_max_conns=1"
	p := s.start(func(c *config.Config) { c.Database.Writers = 4 })
	impatient := s.askInParallel(p, 20)

	beast := record("beast", event("beast", 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"6.66","currency":"EUR"}}`))
	s.generate(generate.Config{Seed: seed, Orders: 60, Rates: generate.Faulty()})
	s.produce(beast, created("o"), rewritten("o"), paid("o", 1), packed("o", 9)) // refused, compared with the log, a conflict, parked
	began := time.Now()
	s.awaitDrained()
	t.Logf("%d records in %v", s.counts().Total(), time.Since(began))
	s.awaitCopied()
	s.compare(s.foldWithout(beast))

	// One that holds the only connection for long makes others give up in time, and does not keep reads from being served.
	if code, _, stderr := s.command("migrate", "status"); code != 0 { // nor is the size of a pool in the way of what has none
		t.Errorf("migrate status: exit code %d\n%s", code, stderr)
	}
	release := s.holdOrders("o")
	s.produce(packed("o", 2))
	s.awaitBlocked()
	impatient.again()
	release()
	s.awaitDrained()
	s.awaitReleased()
	impatient.stop()
	s.compare(s.foldWithout(beast))
	if n := metric(t, p.Registry(), "orderprojector_retries_total", "class=deadline"); n != 0 {
		t.Errorf("%v batches waited for what they held themselves", n)
	}
}

// impatient clients ask the program for its health and metrics all the time.
type impatient struct {
	t      testing.TB
	cancel context.CancelFunc
	work   sync.WaitGroup
	rounds chan struct{}
}

func (s *stage) askInParallel(p instance, clients int) *impatient {
	ctx, cancel := context.WithCancel(context.Background())
	i := &impatient{t: s.t, cancel: cancel, rounds: make(chan struct{})}
	client := &http.Client{Timeout: 4 * time.Second}
	for n := range clients {
		path := []string{"/readyz", "/metrics", "/livez"}[n%3]
		i.work.Go(func() {
			for ctx.Err() == nil {
				response, err := client.Get("http://" + p.HTTPAddr() + path)
				if err != nil {
					s.t.Errorf("%s: %v", path, err)
					return
				}
				_ = response.Body.Close()
				if response.StatusCode != 200 && (path == "/livez" || response.StatusCode != 503) {
					s.t.Errorf("%s: %d", path, response.StatusCode)
				}
				select {
				case i.rounds <- struct{}{}:
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	// No role has more than the one connection.
	i.work.Go(func() {
		for ctx.Err() == nil {
			var most int
			err := s.pool.QueryRow(ctx, `SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'orderprojector-%' GROUP BY application_name) AS roles`).Scan(&most)
			if err == nil && most > 1 {
				s.t.Errorf("%d connections of one role", most)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	s.t.Cleanup(i.stop)
	return i
}

// again waits for a hundred more answers.
func (i *impatient) again() {
	for range 100 {
		select {
		case <-i.rounds:
		case <-time.After(patience):
			i.t.Fatal("no answers")
		}
	}
}

func (i *impatient) stop() {
	i.cancel()
	i.work.Wait()
}

// deadlines wants every wait for a connection and every statement to end.
type deadlines struct {
	t    testing.TB
	seen sync.Map
}

func (d *deadlines) bounded(ctx context.Context, what string) context.Context {
	d.seen.Store(what, true)
	if _, ok := ctx.Deadline(); !ok {
		d.t.Errorf("%s without a deadline:\n%s", what, debug.Stack())
	}
	return ctx
}

func (d *deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return d.bounded(ctx, "a statement")
}

func (d *deadlines) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (d *deadlines) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return d.bounded(ctx, "an acquire")
}

func (d *deadlines) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// Everything that writes does so within deadlines, and with a single connection (B30).
func TestFailureEveryStatementHasADeadline(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 3})
	s.exec(`ALTER TABLE order_rows ADD CONSTRAINT no_beast CHECK (total_minor <> 666)`)
	cfg := s.config()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	configured, err := app.OpenPool(t.Context(), cfg.Database, app.WritePool, 1)
	must(t, err)
	tracer := &deadlines{t: t}
	poolConfig := configured.Config()
	configured.Close()
	poolConfig.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	must(t, err)
	older, err := kafkaio.NewRecordReader(app.KafkaClient(cfg.Kafka), logger)
	must(t, err)
	store := pgstore.New(pool)
	control, err := projection.NewControl(projection.ControlConfig{Group: s.group, Store: store, Logger: logger, Interval: 100 * time.Millisecond})
	must(t, err)
	projector, err := projection.NewProjector(projection.ProjectorConfig{
		Group: s.group, Store: store, Control: control, Older: older, Logger: logger, Writers: 4, SweepInterval: 100 * time.Millisecond,
	})
	must(t, err)
	consumer, err := kafkaio.NewConsumer(app.KafkaClient(cfg.Kafka), kafkaio.ConsumerConfig{
		Group: s.group, Topic: s.topic, CheckInterval: 100 * time.Millisecond, Gate: control,
	}, projector, logger, nil)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { control.Run(ctx) })
	running.Go(func() { projector.Sweep(ctx) })
	running.Go(func() {
		if err := consumer.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait(); older.Close(); pool.Close() })

	beast := record("beast", event("beast", 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"6.66","currency":"EUR"}}`))
	records := []*kgo.Record{beast, created("p"), rewritten("p"), paid("p", 1), packed("p", 9)}
	for i := range 100 {
		records = append(records, on(int32(i%3), created(fmt.Sprintf("o-%d", i))))
	}
	s.produce(records...)
	s.awaitDrained()
	s.compare(s.foldWithout(beast))
	for _, what := range []string{"a statement", "an acquire"} {
		if _, ok := tracer.seen.Load(what); !ok {
			t.Errorf("%s was not seen", what)
		}
	}
}
