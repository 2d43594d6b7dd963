package kafkaio

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// Message is a record to produce.
type Message struct {
	Topic     string
	Key       []byte // decides the partition, the same way as Java's producer does
	Value     []byte
	Headers   []projection.Header
	Timestamp time.Time // zero: now
}

// Producer writes records: acknowledged by all in-sync replicas, idempotent,
// in order per partition. It is safe for concurrent use.
type Producer struct {
	client *kgo.Client
}

// NewProducer checks the configuration; it connects when it is first used.
func NewProducer(client ClientConfig, logger *slog.Logger) (*Producer, error) {
	opts, err := client.Options(logger)
	if err != nil {
		return nil, err
	}
	c, err := kgo.NewClient(append(opts,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(20_000),
		kgo.RecordDeliveryTimeout(30*time.Second),
	)...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka producer: %w", err)
	}
	return &Producer{client: c}, nil
}

// Produce queues a record and returns; it waits only while the buffer is full.
// done, which may be nil, is called once with the record's place or the error,
// in order per partition; it must not block.
func (p *Producer) Produce(ctx context.Context, m Message, done func(partition int32, offset int64, err error)) {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		if done != nil {
			done(r.Partition, r.Offset, err)
		}
	})
}

// Flush waits until every queued record is acknowledged or failed.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("flushing the kafka producer: %w", err)
	}
	return nil
}

// Close gives up what is still queued and closes the connections.
func (p *Producer) Close() { p.client.Close() }
