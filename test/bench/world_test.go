package bench

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	topic      = "orders.events"
	partitions = 4
	writers    = 2 // one per core: the default here
)

// events is how many events the main benchmark projects; BENCH_EVENTS overrides it.
func events() int {
	if n, err := strconv.Atoi(os.Getenv("BENCH_EVENTS")); err == nil {
		return n
	}
	return 1_000_000
}

// world is a broker with traffic in it, and a database server.
type world struct {
	b       *testing.B
	brokers []string
	server  *embedded.Postgres
	records int64
}

func newWorld(b *testing.B, orders int) *world {
	kafka := testenv.StartKafka(b, testenv.KafkaConfig{FullSpeed: true, Heap: "1g"})
	server := testenv.StartPostgres(b, embedded.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	}})
	w := &world{b: b, brokers: kafka.Brokers(), server: server}
	testenv.CreateTopic(b, w.brokers, topic, partitions)
	w.produce(orders)
	return w
}

// produce fills the topic with whole order lives, twenty thousand of them at a time, with a
// few duplicates.
func (w *world) produce(orders int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ProducerLinger(20*time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		w.b.Fatal(err)
	}
	defer client.Close()
	stream, err := generate.New(generate.Config{
		Seed: 1, Orders: orders, InFlight: 20_000, Rates: generate.Rates{Duplicate: 0.01},
	})
	if err != nil {
		w.b.Fatal(err)
	}
	for r := range stream.All() {
		rec := &kgo.Record{Topic: topic, Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)}
		client.Produce(w.b.Context(), rec, func(_ *kgo.Record, err error) {
			if err != nil {
				w.b.Error(err)
			}
		})
		w.records++
	}
	if err := client.Flush(w.b.Context()); err != nil {
		w.b.Fatal(err)
	}
}

// database returns the DSN of a new, migrated database.
func (w *world) database(name string) string {
	dsn, err := w.server.CreateDatabase(w.b.Context(), name)
	if err != nil {
		w.b.Fatal(err)
	}
	testenv.Migrate(w.b, dsn)
	return dsn
}

func (w *world) pool(dsn string, conns int) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		w.b.Fatal(err)
	}
	cfg.MaxConns = int32(conns)
	pgstore.PrepareWriter(cfg)
	pool, err := pgxpool.NewWithConfig(w.b.Context(), cfg)
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(pool.Close)
	return pool
}

// read returns the topic's records, by partition.
func (w *world) read() [][]projection.Record {
	reader, err := kafkaio.NewTopicReader(kafkaio.ClientConfig{SeedBrokers: w.brokers}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.b.Fatal(err)
	}
	defer reader.Close()
	logs := make([][]projection.Record, partitions)
	err = reader.ReadTopic(w.b.Context(), topic, func(r projection.Record) error {
		logs[r.Partition] = append(logs[r.Partition], r)
		return nil
	})
	if err != nil {
		w.b.Fatal(err)
	}
	return logs
}

// program runs the real binary.
type program struct {
	*testenv.Process
	metricsURL string
}

func (w *world) run(dsn string) *program {
	address := "127.0.0.1:" + freePort(w.b)
	p := testenv.StartProcess(w.b, testenv.ProcessConfig{
		Args: []string{"run", "--http-address", address},
		Env: []string{
			"KAFKA_BOOTSTRAP_SERVERS=" + strings.Join(w.brokers, ","), "DATABASE_URL=" + dsn,
			"ORDERPROJECTOR_WRITERS=" + strconv.Itoa(writers), "GODEBUG=" + os.Getenv("BENCH_GODEBUG"),
		},
	})
	return &program{p, "http://" + address + "/metrics"}
}

// metric adds up a metric over its labels; it is 0 while the program does not answer.
func (p *program) metric(ctx context.Context, name string) float64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metricsURL, nil)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	sum := 0.0
	for line := range strings.Lines(string(body)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && (series == name || strings.HasPrefix(series, name+"{")) {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sum += v
			}
		}
	}
	return sum
}

// rate watches a counter from its first movement until it reaches the number of records.
func (w *world) rate(p *program, counter string) float64 {
	w.b.Helper()
	var began, moved time.Time
	var first, last float64
	for moved = time.Now(); time.Since(moved) < time.Minute; {
		n := p.metric(w.b.Context(), counter)
		if n > last {
			moved, last = time.Now(), n
		}
		switch {
		case began.IsZero() && n > 0:
			began, first = time.Now(), n
		case n >= float64(w.records):
			return (n - first) / time.Since(began).Seconds()
		}
		select {
		case <-p.Done():
			w.b.Fatalf("the program ended:\n%s", p.Stderr())
		case <-time.After(100 * time.Millisecond): // asking costs the program processor time
		}
	}
	w.b.Fatalf("stuck at %.0f of %d records:\n%s", last, w.records, p.Stderr())
	return 0
}

func freePort(b *testing.B) string {
	ports, err := freeport.Take(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	return strconv.Itoa(ports[0])
}

// processor is the processor time that a process has used so far, without its children.
func processor(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
