package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

const (
	deliveryTimeout = 15 * time.Second
	// batchedBytes is what a batch of copies may hold: every topic takes that much,
	// unless it was made smaller.
	batchedBytes = 512 << 10
	// singleBytes bounds a copy that goes alone, when its topic takes large ones.
	singleBytes = 96 << 20
)

// DeadLetterTopic writes copies of dead letters to a topic: the same key, value
// and headers, byte for byte, with headers of ours behind them; to the partition the
// record came from where the topic has it, else by the key; acknowledged by all in-sync
// replicas. It implements lettercopy.Topic. It looks the topic up before each round, so that
// one that is missing, was created anew or got another number of partitions needs no restart.
type DeadLetterTopic struct {
	name   string
	opts   func() ([]kgo.Opt, error)
	logger *slog.Logger

	id         projection.TopicID
	partitions int
	batched    *kgo.Client // also asks for the topic; nil until needed
	single     *kgo.Client // takes large records, one at a time; nil until needed
}

var _ lettercopy.Topic = (*DeadLetterTopic)(nil)

// NewDeadLetterTopic checks the configuration; it connects when it is first used.
func NewDeadLetterTopic(client ClientConfig, topic string, logger *slog.Logger) (*DeadLetterTopic, error) {
	if topic == "" {
		return nil, errors.New("no dead-letter topic")
	}
	opts := func() ([]kgo.Opt, error) { return client.Options(logger) }
	if _, err := opts(); err != nil {
		return nil, err
	}
	return &DeadLetterTopic{name: topic, opts: opts, logger: logger}, nil
}

// Close closes the connections. Nothing is queued between calls of Send.
func (t *DeadLetterTopic) Close() {
	for _, client := range []*kgo.Client{t.batched, t.single} {
		if client != nil {
			client.Close()
		}
	}
	t.batched, t.single = nil, nil
}

// Send implements lettercopy.Topic.
func (t *DeadLetterTopic) Send(ctx context.Context, letters []*lettercopy.Letter) []lettercopy.Receipt {
	receipts := make([]lettercopy.Receipt, len(letters))
	for i, l := range letters {
		receipts[i] = lettercopy.Receipt{Letter: l, Topic: t.name, Form: lettercopy.Whole}
	}
	if err := t.prepare(ctx); err != nil {
		for i := range receipts {
			receipts[i].Err = t.failure(err)
		}
		return receipts
	}
	var rest []*lettercopy.Receipt // what did not go with the others
	var common *lettercopy.Failure
	for i, err := range t.sendBatched(ctx, receipts) {
		switch {
		case err == nil:
		case isRefusal(err):
			rest = append(rest, &receipts[i])
		default:
			common = t.failure(err)
			receipts[i].Err = common
		}
	}
	for _, r := range rest {
		if common != nil {
			r.Err = common
		} else if r.Err = t.sendAlone(ctx, r); r.Err != nil && !isRefusal(r.Err) {
			common = t.failure(r.Err)
			r.Err = common
		}
	}
	if common != nil {
		// Whatever a client still believes of the topic is not worth keeping.
		t.Close()
	}
	return receipts
}

// prepare looks the topic up and makes sure that the client knows the same one:
// a producer never forgets partitions that a topic created anew no longer has.
func (t *DeadLetterTopic) prepare(ctx context.Context) error {
	if t.batched == nil {
		client, err := t.newClient(batchedBytes)
		if err != nil {
			return err
		}
		t.batched = client
	}
	id, partitions, err := lookupTopic(ctx, t.batched, t.name)
	if err != nil {
		return err
	}
	if partitions == 0 {
		return fmt.Errorf("topic %s has no partitions yet: %w", t.name, kerr.LeaderNotAvailable)
	}
	if id == t.id && partitions >= t.partitions {
		t.partitions = partitions
		return nil
	}
	if t.partitions > 0 {
		t.logger.Info("the dead-letter topic is another one", "topic", t.name, "topic_id", id, "partitions", partitions, "before", t.partitions)
		t.Close()
		if t.batched, err = t.newClient(batchedBytes); err != nil {
			return err
		}
	}
	t.id, t.partitions = id, partitions
	return nil
}

func (t *DeadLetterTopic) newClient(batchBytes int32) (*kgo.Client, error) {
	opts, err := t.opts()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(choosePartition)),
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.UnknownTopicRetries(2),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		// What fails is copied again later: better twice than to hang in doubt.
		kgo.AllowIdempotentProduceCancellation(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka producer of dead letters: %w", err)
	}
	return client, nil
}

// choosePartition keeps the record's partition, where there is one like it.
func choosePartition(topic string) func(*kgo.Record, int) int {
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	return func(r *kgo.Record, partitions int) int {
		switch {
		case int(r.Partition) < partitions:
			return int(r.Partition)
		case r.Key != nil:
			return byKey.Partition(r, partitions)
		}
		return 0
	}
}

// copyOf makes the record of a letter. Its timestamp is the time of the copy: a topic
// with a retention time would remove the copy of an old record at once.
func (t *DeadLetterTopic) copyOf(l *lettercopy.Letter, valueOmitted string) *kgo.Record {
	r := &kgo.Record{
		Topic: t.name, Partition: l.Record.Partition, Key: l.Record.Key, Value: l.Record.Value, Headers: copyHeaders(l, valueOmitted),
	}
	if valueOmitted != "" {
		r.Value = nil
	}
	return r
}

// sendBatched writes all copies at once and returns an error or nil for each.
func (t *DeadLetterTopic) sendBatched(ctx context.Context, receipts []lettercopy.Receipt) []error {
	errs := make([]error, len(receipts))
	type result struct {
		i   int
		r   *kgo.Record
		err error
	}
	results := make(chan result, len(receipts))
	for i := range receipts {
		t.batched.Produce(ctx, t.copyOf(receipts[i].Letter, ""), func(r *kgo.Record, err error) { results <- result{i, r, err} })
	}
	for range receipts {
		done := <-results // each comes: the client ends records with ctx and after its delivery timeout
		errs[done.i] = done.err
		receipts[done.i].Partition, receipts[done.i].Offset = done.r.Partition, done.r.Offset
	}
	return errs
}

// sendAlone writes a copy that was refused among others: whole, or else
// without its value. It returns nil when the letter is dealt with.
func (t *DeadLetterTopic) sendAlone(ctx context.Context, r *lettercopy.Receipt) error {
	if t.single == nil {
		client, err := t.newClient(singleBytes)
		if err != nil {
			return err
		}
		t.single = client
	}
	err := t.sendOne(ctx, r, "")
	if !isTooLarge(err) {
		return err
	}
	r.Form, r.Reason = lettercopy.WithoutValue, err.Error()
	if err = t.sendOne(ctx, r, omittedBecause(r.Letter)); isTooLarge(err) {
		r.Form, r.Reason = lettercopy.NoCopy, "key and headers alone are too large for the topic: "+err.Error()
		return nil
	}
	return err
}

func (t *DeadLetterTopic) sendOne(ctx context.Context, r *lettercopy.Receipt, valueOmitted string) error {
	written, err := t.single.ProduceSync(ctx, t.copyOf(r.Letter, valueOmitted)).First()
	if err == nil {
		r.Partition, r.Offset = written.Partition, written.Offset
	}
	return err
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// isRefusal reports whether the error is about the records, not about the topic.
func isRefusal(err error) bool {
	return isTooLarge(err) || errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.PolicyViolation)
}

// failure says what kept the copies from being written, and what to do about it.
func (t *DeadLetterTopic) failure(err error) *lettercopy.Failure {
	f := &lettercopy.Failure{Class: lettercopy.Broker, Err: fmt.Errorf("copying dead letters to %s: %w", t.name, err)}
	switch {
	case errors.Is(err, errTopicMissing), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		f.Class = lettercopy.TopicMissing
		f.Advice = "create the topic with as many partitions as the events have, or switch the copies off with --dead-letter-topic="
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed),
		errors.Is(err, kerr.SaslAuthenticationFailed):
		f.Class = lettercopy.Forbidden
		f.Advice = "grant DESCRIBE and WRITE on the topic, or switch the copies off with --dead-letter-topic="
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		f.Advice = "fewer replicas are in sync than the topic's min.insync.replicas"
	default:
		f.Advice = "check that the brokers are reachable and have room"
	}
	return f
}
