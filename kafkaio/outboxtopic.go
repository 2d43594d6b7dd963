package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Records that were refused among others go again, one at a time: then it is their own fault.
	alone   []aloneRecord
	working bool // a goroutine works those off
	done    sync.WaitGroup
}

type aloneRecord struct {
	record relay.Record
	done   func(error)
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
	return &OutboxTopic{name: topic, opts: opts, logger: logger, ctx: ctx, cancel: cancel}, nil
}

// Prepare implements relay.Topic. It looks the topic up; a producer never forgets partitions that a topic
// made anew no longer has, so another topic of that name gets another client.
func (t *OutboxTopic) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outboxPrepare)
	defer cancel()
	t.mu.Lock()
	client := t.batched
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
	if client != nil && id == t.id && partitions >= t.partitions {
		t.partitions = partitions
		return nil
	}
	if client != nil {
		t.logger.Info("the topic is another one", "topic", t.name, "topic_id", id, "partitions", partitions, "before", t.partitions)
	}
	fresh, err := t.newClient(batchLimit(ctx, asks, t.name))
	if err != nil {
		return t.failure(err)
	}
	t.mu.Lock()
	t.batched, t.id, t.partitions = fresh, id, partitions
	t.mu.Unlock()
	if client != nil {
		client.Close() // what is in flight fails, and is published again
	}
	return nil
}

// batchLimit is how large a batch may be. A batch that is too large is refused as a whole, which is not
// the fault of any record in it.
func batchLimit(ctx context.Context, client *kgo.Client, topic string) int32 {
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return outboxBatchBytes // not allowed to ask, perhaps
	}
	config, err := configs.On(topic, nil)
	if err != nil {
		return outboxBatchBytes
	}
	for _, c := range config.Configs {
		if c.Key == "max.message.bytes" && c.Value != nil {
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil {
				return max(512, min(int32(n), outboxBatchBytes))
			}
		}
	}
	return outboxBatchBytes
}

func (t *OutboxTopic) newClient(batchBytes int32) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(t.opts[:len(t.opts):len(t.opts)],
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
	)...)
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
		case isRefusal(err):
			t.sendAlone(aloneRecord{r, done})
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

func (t *OutboxTopic) sendAlone(r aloneRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone = append(t.alone, r)
	if !t.working {
		t.working = true
		t.done.Go(t.workAlone)
	}
}

// workAlone sends what was refused among others, one at a time, until there is no more.
func (t *OutboxTopic) workAlone() {
	client, err := t.newClient(singleBytes)
	if err == nil {
		defer client.Close()
	}
	for {
		t.mu.Lock()
		if len(t.alone) == 0 {
			t.working = false
			t.mu.Unlock()
			return
		}
		r := t.alone[0]
		t.alone = t.alone[1:]
		t.mu.Unlock()
		result := err
		if result == nil {
			_, result = client.ProduceSync(t.ctx, t.record(r.record)).First()
		}
		switch {
		case result == nil:
			r.done(nil)
		case isTooLarge(result):
			r.done(&relay.Refusal{Reason: relay.TooLarge, Err: fmt.Errorf("%d bytes are too many for topic %s: %w", len(r.record.Value), t.name, result)})
		case isRefusal(result) && !errors.Is(result, kerr.InvalidTimestamp): // the time is the relay's own
			r.done(&relay.Refusal{Reason: relay.Refused, Err: fmt.Errorf("topic %s refuses the record: %w", t.name, result)})
		default:
			r.done(t.failure(result))
		}
	}
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
	t.done.Wait()
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
