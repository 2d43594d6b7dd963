package publish

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
)

func startKafka(t *testing.T) kafkaio.ClientConfig {
	t.Helper()
	kafka, err := embedded.StartKafka(embedded.KafkaConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return kafkaio.ClientConfig{SeedBrokers: kafka.Brokers()}
}

func open(t *testing.T, config Config) (*Publisher, error) {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	p, err := Open(t.Context(), config)
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

func traffic(t *testing.T, config generate.Config) *generate.Stream {
	t.Helper()
	stream, err := generate.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestEverythingArrivesInItsOrdersPartition(t *testing.T) {
	t.Parallel()
	client := startKafka(t)
	p, err := open(t, Config{Client: client, Topic: "orders.test", Create: true, Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	if p.Partitions() != 3 {
		t.Fatalf("%d partitions", p.Partitions())
	}
	config := generate.Config{Seed: 4, Orders: 500, Rates: generate.Faulty()}
	calls := int64(0)
	summary, err := p.Run(t.Context(), traffic(t, config), 0, func(Summary) { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if summary.Orders != 500 || summary.Records != calls || summary.Faults[generate.None] == 0 {
		t.Errorf("summary: %+v, %d calls", summary, calls)
	}

	// What the stream says of every value, and where it arrived.
	wanted := map[string]generate.Record{}
	for r := range traffic(t, config).All() {
		if r.Value != nil {
			wanted[string(r.Value)] = r
		}
	}
	reader, err := kafkaio.NewTopicReader(client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	partitionOf := map[string]int32{}
	read, nullKeys := int64(0), 0
	err = reader.ReadTopic(t.Context(), "orders.test", func(r projection.Record) error {
		read++
		if len(r.Headers) != 1 || r.Headers[0].Key != generate.HeaderGenerator || string(r.Headers[0].Value) != "seed=4" {
			t.Fatalf("headers: %v", r.Headers)
		}
		g, ok := wanted[string(r.Value)]
		if !ok && r.Value != nil {
			t.Fatalf("nobody sent %.200q", r.Value)
		}
		if r.Key == nil {
			nullKeys++
		}
		if g.Value == nil || r.Key != nil && string(r.Key) != g.Label.OrderID {
			return nil // not the order's own traffic
		}
		if p, known := partitionOf[g.Label.OrderID]; known && p != r.Partition {
			t.Errorf("order %s is in partitions %d and %d", g.Label.OrderID, p, r.Partition)
		}
		partitionOf[g.Label.OrderID] = r.Partition
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read != summary.Records || nullKeys == 0 {
		t.Errorf("read %d of %d records, %d null keys", read, summary.Records, nullKeys)
	}

	// A topic of our own takes more.
	if _, err := open(t, Config{Client: client, Topic: "orders.test"}); err != nil {
		t.Errorf("a topic with generated records is refused: %v", err)
	}
}

func TestWrongTopicsAreRefused(t *testing.T) {
	t.Parallel()
	client := startKafka(t)
	var refused *TopicError
	if _, err := open(t, Config{Client: client, Topic: "nothing"}); !errors.As(err, &refused) || refused.Hint() == "" {
		t.Errorf("missing topic: %v", err)
	}
	p, err := open(t, Config{Client: client, Topic: "shared", Create: true, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), traffic(t, generate.Config{Orders: 3}), 0, nil); err != nil {
		t.Fatal(err)
	}
	foreign := &kgo.Record{Topic: "shared", Key: []byte("o-1"), Value: []byte("{}")}
	if err := p.client.ProduceSync(t.Context(), foreign).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, Config{Client: client, Topic: "shared"}); !errors.As(err, &refused) || refused.Hint() == "" {
		t.Errorf("foreign records: %v", err)
	}
}

func TestARunCanBeStopped(t *testing.T) {
	t.Parallel()
	p, err := open(t, Config{Client: startKafka(t), Topic: "orders.test", Create: true, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	summary, err := p.Run(ctx, traffic(t, generate.Config{Orders: 1000}), 0, func(s Summary) {
		if s.Records == 100 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || summary.Records != 100 {
		t.Errorf("%d records, %v", summary.Records, err)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	p, err := open(t, Config{Client: startKafka(t), Topic: "orders.test", Create: true, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := p.Run(t.Context(), traffic(t, generate.Config{Orders: 20}), 500, nil)
	if err != nil {
		t.Fatal(err)
	}
	if least := time.Duration(summary.Records-2) * time.Second / 500; summary.Elapsed < least {
		t.Errorf("%d records in %s, faster than 500/s", summary.Records, summary.Elapsed)
	}
}

func TestLargeTopicsAreSampled(t *testing.T) {
	t.Parallel()
	small := kafkaio.PartitionRange{From: 5, Until: 1000}
	large := kafkaio.PartitionRange{From: 100, Until: 1_000_000}
	if got := sampleRanges([]kafkaio.PartitionRange{small}); len(got) != 1 || got[0] != small {
		t.Errorf("a small topic is looked through in parts: %v", got)
	}
	got := sampleRanges([]kafkaio.PartitionRange{small, large})
	if got[0] != small || len(got) != 1+samples || got[1].From != 100 || got[len(got)-1].Until != 1_000_000 {
		t.Errorf("samples: %v", got)
	}
}
