package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/outbox/relay"
	"github.com/orderprojector/orderprojector/projection"
)

const (
	// What is not acknowledged by then is given up and published again. Together with
	// the relay's lease it is shorter than it takes another relay to follow one that fell silent.
	outboxDelivery = 5 * time.Second
	outboxRequest  = 3 * time.Second
	outboxPrepare  = 4 * time.Second
	// outboxBuffered is more than a relay has in flight: publishing never waits for room.
	outboxBuffered   = 100_000
	outboxBatchBytes = 1_000_000 // every topic takes that much, unless it was made smaller
	outboxLeastBytes = 64 << 10  // requests with several records are never made smaller
	// After a few attempts, within a second, the records of a request are tried apart.
	outboxRetries = 3
)

// OutboxTopic publishes an outbox's records: keyed by order, acknowledged by all in-sync
// replicas, idempotent. It implements relay.Topic.
type OutboxTopic struct {
	name   string
	opts   []kgo.Opt
	logger *slog.Logger
	ctx    context.Context // of everything in flight
	cancel context.CancelFunc

	mu         sync.Mutex
	batched    *kgo.Client // also asks for the topic; nil until prepared
	id         projection.TopicID
	partitions int
	// requestBytes bounds a request with several records. It is halved when the connection was closed at one.
	requestBytes int32
	batchedBytes int32 // what the client was made with
	apart        sync.WaitGroup
}

var _ relay.Topic = (*OutboxTopic)(nil)

// NewOutboxTopic checks the configuration; it connects with Prepare. Close it.
func NewOutboxTopic(client ClientConfig, topic string, logger *slog.Logger) (*OutboxTopic, error) {
	if topic == "" {
		return nil, errors.New("no topic for the outbox")
	}
	opts, err := client.Options(logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &OutboxTopic{name: topic, opts: opts, logger: logger, ctx: ctx, cancel: cancel, requestBytes: outboxBatchBytes}, nil
}

// Prepare implements relay.Topic. It looks the topic up; a producer never forgets partitions that a topic
// made anew no longer has, so another topic of that name gets another client.
func (t *OutboxTopic) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outboxPrepare)
	defer cancel()
	t.mu.Lock()
	client, most := t.batched, t.requestBytes
	resized := most != t.batchedBytes
	t.mu.Unlock()
	asks := client
	if asks == nil {
		var err error
		if asks, err = t.newClient(outboxBatchBytes); err != nil {
			return t.failure(err)
		}
		defer asks.Close()
	}
	id, partitions, err := lookupTopic(ctx, asks, t.name)
	if err == nil && partitions == 0 {
		err = fmt.Errorf("topic %s has no partitions yet: %w", t.name, kerr.LeaderNotAvailable)
	}
	if err != nil {
		return t.failure(err)
	}
	same := client != nil && id == t.id && partitions >= t.partitions
	switch {
	case same && !resized:
		t.partitions = partitions
		return nil
	case same:
		t.logger.Info("connections are closed at large requests: smaller ones are sent", "topic", t.name, "request_bytes", most)
	case client != nil:
		t.logger.Info("the topic is another one", "topic", t.name, "topic_id", id, "partitions", partitions, "before", t.partitions)
	}
	batch := most
	if limit, err := maxRecordBytes(ctx, asks, t.name); err == nil { // not allowed to ask, perhaps
		// A batch that is too large is refused as a whole, which is not the fault of any record in it.
		batch = max(512, min(int32(limit), most))
	}
	fresh, err := t.newClient(batch, kgo.BrokerMaxWriteBytes(most), kgo.RecordRetries(outboxRetries))
	if err != nil {
		return t.failure(err)
	}
	t.mu.Lock()
	t.batched, t.batchedBytes, t.id, t.partitions = fresh, most, id, partitions
	t.mu.Unlock()
	if client != nil {
		client.Close() // what is in flight fails, and is published again
	}
	return nil
}

// MaxRecordBytes implements relay.Topic.
func (t *OutboxTopic) MaxRecordBytes(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, outboxPrepare)
	defer cancel()
	t.mu.Lock()
	client := t.batched
	t.mu.Unlock()
	if client == nil {
		return 0, errClientClosed
	}
	limit, err := maxRecordBytes(ctx, client, t.name)
	if err != nil {
		return 0, t.failure(err)
	}
	return limit, nil
}

func maxRecordBytes(ctx context.Context, client *kgo.Client, topic string) (int64, error) {
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return 0, err
	}
	config, err := configs.On(topic, nil)
	if err != nil {
		return 0, err
	}
	for _, c := range config.Configs {
		if c.Key == "max.message.bytes" && c.Value != nil {
			return strconv.ParseInt(*c.Value, 10, 32)
		}
	}
	return 0, errors.New("the broker does not say")
}

func (t *OutboxTopic) newClient(batchBytes int32, opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(slices.Concat(t.opts, opts, []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2
		// While requests are under way others gather: lingering adds nothing but delay.
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.MaxBufferedRecords(outboxBuffered),
		kgo.ProduceRequestTimeout(outboxRequest),
		kgo.RecordDeliveryTimeout(outboxDelivery),
		kgo.UnknownTopicRetries(2),
		// What fails is published again: better twice than to hang in doubt.
		kgo.AllowIdempotentProduceCancellation(),
	})...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka producer of the outbox: %w", err)
	}
	return client, nil
}

// Publish implements relay.Topic.
func (t *OutboxTopic) Publish(r relay.Record, done func(error)) {
	t.mu.Lock()
	client := t.batched
	t.mu.Unlock()
	if client == nil {
		done(t.failure(errClientClosed))
		return
	}
	client.Produce(t.ctx, t.record(r), func(_ *kgo.Record, err error) {
		switch {
		case err == nil:
			done(nil)
		case isRefusal(err) && !errors.Is(err, kerr.InvalidTimestamp): // the time is the relay's own
			done(t.refusal(r, err))
		default:
			done(t.failure(err))
		}
	})
}

func (t *OutboxTopic) record(r relay.Record) *kgo.Record {
	record := &kgo.Record{Topic: t.name, Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		record.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			record.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	return record
}

// Close implements relay.Topic.
func (t *OutboxTopic) Close() {
	t.cancel()
	t.mu.Lock()
	client := t.batched
	t.batched = nil
	t.mu.Unlock()
	if client != nil {
		client.Close()
	}
	t.apart.Wait()
}

// refusal says that the broker refuses a batch, by its code.
func (t *OutboxTopic) refusal(r relay.Record, err error) *relay.Refusal {
	if isTooLarge(err) {
		return &relay.Refusal{Reason: relay.TooLarge, Err: fmt.Errorf("%d bytes are too many for topic %s: %w", batchBytes(r), t.name, err)}
	}
	return &relay.Refusal{Reason: relay.Refused, Err: fmt.Errorf("topic %s refuses the record: %w", t.name, err)}
}

// batchBytes is the size of a batch with one record, not compressed: at most a few bytes less.
func batchBytes(r relay.Record) int {
	const batch, record, header = 61, 24, 10
	n := batch + record + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += header + len(h.Key) + len(h.Value)
	}
	return n
}

// failure says what keeps records from being published, and what to do about it: by Kafka's error codes.
func (t *OutboxTopic) failure(err error) *relay.Failure {
	f := &relay.Failure{Class: relay.Broker, Err: fmt.Errorf("publishing to %s: %w", t.name, err)}
	switch {
	case errors.Is(err, errTopicMissing), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		f.Class, f.Advice = relay.TopicMissing, "create the topic, or correct --topic"
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.SaslAuthenticationFailed):
		f.Class, f.Advice = relay.Forbidden, "check user and password, and grant DESCRIBE and WRITE on the topic"
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		f.Advice = "fewer replicas are in sync than the topic's min.insync.replicas"
	default:
		f.Advice = "check that the brokers are reachable and have room"
	}
	return f
}
