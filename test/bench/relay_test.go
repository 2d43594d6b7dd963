package bench

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// BenchmarkRelay compares the relay's rate with that of a producer alone: the same records to
// the same broker, acknowledged in the same way, but from memory and without waiting for the
// version before. The relay reads each message from PostgreSQL, publishes it, and deletes it.
func BenchmarkRelay(b *testing.B) {
	messages := 200_000
	if n, err := strconv.Atoi(os.Getenv("BENCH_EVENTS")); err == nil {
		messages = n
	}
	kafka := testenv.StartKafka(b, testenv.KafkaConfig{FullSpeed: true, Heap: "1g"})
	server := testenv.StartPostgres(b, embedded.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	}})
	w := &world{b: b, brokers: kafka.Brokers(), server: server}
	dsn := w.database("relay")
	records := w.lives(messages)
	w.records = int64(len(records))
	w.fillOutbox(dsn, records)

	testenv.CreateTopic(b, w.brokers, "warm-up", partitions)
	testenv.CreateTopic(b, w.brokers, "producer", partitions)
	testenv.CreateTopic(b, w.brokers, topic, partitions)
	w.straight("warm-up", records)
	limit := w.straight("producer", records)

	began := time.Now()
	p := w.runRelay(dsn)
	rate := w.rate(p, "orderprojector_outbox_published_total")
	used := processor(p.Pid())
	b.Logf("%d messages in %v", len(records), time.Since(began).Round(time.Millisecond))
	w.awaitEmptyOutbox(dsn)
	w.inOrder()
	b.ReportMetric(rate, "relay/s")
	b.ReportMetric(limit, "producer/s")
	b.ReportMetric(rate/limit, "ratio")
	b.ReportMetric(used.Seconds()/float64(len(records))*1e6, "relay-cpu-µs/msg")
	b.Logf("relay %.0f messages/s, producer alone %.0f records/s: %.2f of it", rate, limit, rate/limit)
}

// lives returns records of whole orders' lives, twenty thousand of them at a time.
func (w *world) lives(n int) (records []*kgo.Record) {
	stream, err := generate.New(generate.Config{Seed: 1, Orders: n, InFlight: 20_000})
	if err != nil {
		w.b.Fatal(err)
	}
	for r := range stream.All() {
		records = append(records, &kgo.Record{Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)})
		if len(records) == n {
			break
		}
	}
	return records
}

func (w *world) fillOutbox(dsn string, records []*kgo.Record) {
	conn, err := pgx.Connect(w.b.Context(), dsn)
	if err != nil {
		w.b.Fatal(err)
	}
	defer func() { _ = conn.Close(w.b.Context()) }()
	_, err = conn.CopyFrom(w.b.Context(), pgx.Identifier{"outbox"}, []string{"id", "aggregateid", "type", "payload"},
		pgx.CopyFromSlice(len(records), func(i int) ([]any, error) {
			e, err := projection.JSONDecoder{}.Decode(&projection.Record{Key: records[i].Key, Value: records[i].Value})
			return []any{e.EventID, e.OrderID, e.Type, string(records[i].Value)}, err
		}))
	if err != nil {
		w.b.Fatal(err)
	}
	if _, err := conn.Exec(w.b.Context(), `VACUUM ANALYZE outbox`); err != nil {
		w.b.Fatal(err)
	}
}

// straight is the rate of a producer that does nothing else.
func (w *world) straight(topic string, records []*kgo.Record) float64 {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		w.b.Fatal(err)
	}
	defer client.Close()
	began := time.Now()
	for _, r := range records {
		client.Produce(w.b.Context(), &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}, func(_ *kgo.Record, err error) {
			if err != nil {
				w.b.Error(err)
			}
		})
	}
	if err := client.Flush(w.b.Context()); err != nil {
		w.b.Fatal(err)
	}
	return float64(len(records)) / time.Since(began).Seconds()
}

func (w *world) runRelay(dsn string) *program {
	address := "127.0.0.1:" + freePort(w.b)
	p := testenv.StartProcess(w.b, testenv.ProcessConfig{
		Args: []string{"run", "relay", "--http-address", address},
		Env:  []string{"KAFKA_BOOTSTRAP_SERVERS=" + strings.Join(w.brokers, ","), "DATABASE_URL=" + dsn},
	})
	return &program{p, "http://" + address + "/metrics"}
}

func (w *world) awaitEmptyOutbox(dsn string) {
	conn, err := pgx.Connect(w.b.Context(), dsn)
	if err != nil {
		w.b.Fatal(err)
	}
	defer func() { _ = conn.Close(w.b.Context()) }()
	testenv.Await(w.b, time.Minute, func() (bool, string) {
		var empty bool
		err := conn.QueryRow(w.b.Context(), `SELECT NOT EXISTS (SELECT FROM outbox)`).Scan(&empty)
		return err == nil && empty, "the outbox is not empty"
	})
}

// inOrder fails unless each order's events are in the topic once, in the order of their versions.
func (w *world) inOrder() {
	reader, err := kafkaio.NewTopicReader(kafkaio.ClientConfig{SeedBrokers: w.brokers}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.b.Fatal(err)
	}
	defer reader.Close()
	last := map[string]int64{}
	var n int64
	err = reader.ReadTopic(w.b.Context(), topic, func(r projection.Record) error {
		e, err := projection.JSONDecoder{}.Decode(&r)
		if err != nil {
			return err
		}
		if e.Version != last[e.OrderID]+1 {
			w.b.Errorf("order %s: version %d behind version %d", e.OrderID, e.Version, last[e.OrderID])
		}
		last[e.OrderID] = e.Version
		n++
		return nil
	})
	if err != nil {
		w.b.Fatal(err)
	}
	if n != w.records {
		w.b.Errorf("%d of %d messages in the topic", n, w.records)
	}
}
