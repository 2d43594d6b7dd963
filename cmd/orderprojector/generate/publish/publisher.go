// Package publish sends generated traffic to a topic of its own.
package publish

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
)

const (
	maxBufferedRecords = 20_000
	maxBufferedBytes   = 64 << 20
	// A record of a million bytes has to fit into a batch; brokers take 1 MiB by default.
	maxBatchBytes   = 1 << 20
	deliveryTimeout = 30 * time.Second
)

// Config says where generated records go.
type Config struct {
	Client kafkaio.ClientConfig
	Topic  string
	// Create makes the topic, with that many partitions, when it does not exist.
	Create     bool
	Partitions int32
	Logger     *slog.Logger // required
}

// Publisher sends records to one topic, acknowledged by all in-sync replicas
// and in order per partition. One goroutine uses it at a time.
type Publisher struct {
	client     *kgo.Client
	topic      string
	partitions int
	place      kgo.TopicPartitioner
}

// Open checks that the topic can take generated records, creates it where that
// is asked for, and returns its publisher. A topic that is missing, or holds
// records of somebody else, is refused with a *TopicError.
func Open(ctx context.Context, config Config) (*Publisher, error) {
	opts, err := config.Client.Options(config.Logger)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(maxBatchBytes),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
	)...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka producer: %w", err)
	}
	partitions, err := prepareTopic(ctx, client, config)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Publisher{
		client: client, topic: config.Topic, partitions: partitions,
		// Java's partitioner, so that an order's records stay together with what others send.
		place: kgo.StickyKeyPartitioner(nil).ForTopic(config.Topic),
	}, nil
}

// Partitions is the topic's number of partitions.
func (p *Publisher) Partitions() int { return p.partitions }

// Close closes the connections.
func (p *Publisher) Close() { p.client.Close() }

// Summary is what was published.
type Summary struct {
	Orders  int
	Records int64
	Bytes   int64 // of keys and values
	Faults  map[generate.Fault]int64
	Elapsed time.Duration
}

// Run publishes the rest of the stream, at most rate records per second (0: as fast
// as it goes), and returns once everything is acknowledged. The summary covers what was
// handed over also when an error ends it. progress, if not nil, is called after every
// record.
func (p *Publisher) Run(ctx context.Context, stream *generate.Stream, rate float64, progress func(Summary)) (Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed sync.Once
	done := func(r *kgo.Record, err error) {
		if err != nil {
			failed.Do(func() {
				cancel(fmt.Errorf("producing to %s-%d: %w", r.Topic, r.Partition, err))
			})
		}
	}
	began := time.Now()
	summary := Summary{Faults: make(map[generate.Fault]int64)}
	pace := newPace(rate, began)
	for ctx.Err() == nil {
		g, ok := stream.Next()
		if !ok {
			break
		}
		if err := pace.wait(ctx); err != nil {
			break
		}
		p.client.Produce(ctx, p.record(g), done)
		summary.Records++
		summary.Bytes += int64(len(g.Key) + len(g.Value))
		summary.Faults[g.Label.Fault]++
		summary.Orders = stream.Started()
		if progress != nil {
			summary.Elapsed = time.Since(began)
			progress(summary)
		}
	}
	err := p.client.Flush(ctx)
	summary.Elapsed = time.Since(began)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return summary, err
}

func (p *Publisher) record(g generate.Record) *kgo.Record {
	headers := make([]kgo.RecordHeader, len(g.Headers))
	for i, h := range g.Headers {
		headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	r := &kgo.Record{Topic: p.topic, Key: g.PartitionKey, Value: g.Value, Headers: headers}
	r.Partition = int32(p.place.Partition(r, p.partitions))
	r.Key = g.Key
	return r
}
