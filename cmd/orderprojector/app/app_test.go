package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

const patience = 30 * time.Second

// startKafka starts an in-process cluster with the topic.
func startKafka(t *testing.T) []string {
	t.Helper()
	kafka, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"orders.events": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return kafka.Brokers()
}

func configure(brokers []string, dsn string) config.Config {
	cfg := config.Default()
	cfg.Kafka.BootstrapServers = brokers
	cfg.Database.URL = config.NewDatabaseURL(dsn)
	cfg.HTTP.Address = "127.0.0.1:0"
	return cfg
}

// running is a program under test.
type running struct {
	*app.App
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, cfg config.Config) *running {
	t.Helper()
	program, err := app.New(t.Context(), cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{App: program, t: t, stop: stop, done: make(chan error, 1)}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.done <- program.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-finished })
	return r
}

// wait returns what Run returned.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("the program does not stop")
		return nil
	}
}

// get returns the status and body of a path, and 0 while nothing answers.
func (r *running) get(path string) (int, string) {
	response, err := http.Get("http://" + r.HTTPAddr() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func (r *running) await(path string, status int, contains string) {
	r.t.Helper()
	testenv.Await(r.t, patience, func() (bool, string) {
		got, body := r.get(path)
		return got == status && strings.Contains(body, contains), fmt.Sprintf("%s: %d %s", path, got, body)
	})
}

// produce writes records and returns when the brokers have them.
func produce(t *testing.T, brokers []string, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("orders.events"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, value := range values {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func event(order string, version int, kind, data string) string {
	return fmt.Sprintf(`{"event_id":"%s-%d","order_id":"%s","type":"%s","version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`,
		order, version, order, kind, version, data)
}

func TestTheProgramProjectsAndStops(t *testing.T) {
	t.Parallel()
	brokers, dsn := startKafka(t), testenv.Database(t)
	produce(t, brokers,
		event("o-1", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"}}`),
		event("o-1", 2, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":"19.99","currency":"EUR"}}`),
		event("o-2", 3, "OrderPacked.v1", `{}`),
		"nonsense")
	program := start(t, configure(brokers, dsn))

	program.await("/metrics", 200, `orderprojector_events_total{outcome="invalid"} 1`)
	program.await("/readyz?verbose", 200, `"lifecycle"`)
	program.await("/healthz/consumption", 200, "ok")
	for _, want := range []string{
		"orderprojector_build_info{", "go_goroutines", `orderprojector_events_total{outcome="applied"} 2`,
		`orderprojector_events_total{outcome="parked"} 1`, "orderprojector_parked_oldest_seconds", `orderprojector_dead_letters{reason="invalid",status="open"}`,
		"orderprojector_consumer_lag_records{",
	} {
		program.await("/metrics", 200, want)
	}
	if problems, err := testutil.GatherAndLint(program.Registry()); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", err, problems)
	}
	answer := readOrder(t, dsn, "o-1")
	if answer.Order == nil || answer.Order.State != "paid" || answer.Order.Paid != "19.99" {
		t.Errorf("o-1 is %+v", answer.Order)
	}

	program.stop()
	if err := program.wait(); err != nil {
		t.Error(err)
	}
	if status, _ := program.get("/livez"); status != 0 {
		t.Error("HTTP still answers")
	}
}

func readOrder(t *testing.T, dsn, id string) pgstore.OrderAnswer {
	t.Helper()
	pool, err := app.OpenPool(t.Context(), configure(nil, dsn).Database, app.ReadPool, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	answer, err := pgstore.NewReader(pool).Order(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestTheProgramWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	brokers, dsn := startKafka(t), testenv.Database(t)
	produce(t, brokers, event("o-1", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"1","currency":"EUR"}}`))
	proxy := testenv.StartProxy(t, address(t, dsn))
	proxy.Cut()
	program := start(t, configure(brokers, proxy.DSN(t, dsn)))

	program.await("/livez", 200, "ok")
	program.await("/readyz", 503, "database")
	program.await("/healthz/consumption", 503, "waiting for the database")
	proxy.Heal()
	program.await("/readyz", 200, "ok")
	program.await("/metrics", 200, `orderprojector_events_total{outcome="applied"} 1`)

	proxy.Cut() // an outage while it runs: not ready, yet alive, and ready again
	program.await("/readyz", 503, "database")
	program.await("/livez", 200, "ok")
	proxy.Heal()
	program.await("/readyz", 200, "ok")
}

func address(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
}

func TestWaitingForTheDatabaseCanBeStopped(t *testing.T) {
	t.Parallel()
	program := start(t, configure([]string{"127.0.0.1:1"}, "postgres://u@127.0.0.1:1/d"))
	program.await("/healthz/consumption", 503, "waiting for the database")
	program.stop()
	if err := program.wait(); err != nil {
		t.Error(err)
	}
}

func TestAWrongSchemaEndsTheProgram(t *testing.T) {
	t.Parallel()
	var mismatch *pgstore.SchemaError
	err := start(t, configure(startKafka(t), testenv.EmptyDatabase(t))).wait()
	if !errors.As(err, &mismatch) || mismatch.Have != 0 || !strings.Contains(app.Hint(err), "migrate up") {
		t.Errorf("got %v, hint %q", err, app.Hint(err))
	}
}

func TestSessionsHaveTheirLimits(t *testing.T) {
	t.Parallel()
	db := configure(nil, testenv.Database(t)).Database
	for role, want := range map[app.PoolRole]string{app.WritePool: "orderprojector-write", app.ReadPool: "orderprojector-read"} {
		pool, err := app.OpenPool(t.Context(), db, role, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for setting, value := range map[string]string{
			"application_name": want, "statement_timeout": "10s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "10s",
		} {
			var got string
			if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != value {
				t.Errorf("%s: %s is %q, want %q: %v", role, setting, got, value, err)
			}
		}
	}
}

func TestWritersRefuseAReadOnlyServer(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	db := configure(nil, dsn).Database
	for role, works := range map[app.PoolRole]bool{app.WritePool: false, app.ReadPool: true} {
		pool, err := app.OpenPool(t.Context(), db, role, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if err := pool.Ping(t.Context()); (err == nil) != works {
			t.Errorf("%s: %v", role, err)
		}
	}
}
