package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

const (
	deliveryTimeout = 15 * time.Second
	copyRetries     = 3 // after a few attempts, within a second, copies are tried apart
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
	all := make([]*lettercopy.Receipt, len(receipts))
	for i := range receipts {
		all[i] = &receipts[i]
	}
	rest, cause := t.sendBatched(ctx, t.batched, all)
	if len(rest) == 0 {
		return receipts
	}
	if common := t.sendApart(ctx, rest, len(rest) < len(all)); common != nil {
		for _, r := range rest {
			if r.Err != nil {
				r.Err = common
			}
		}
	}
	if cause != nil && !isRefusal(cause) {
		// Whatever a client still believes of the topic is not worth keeping.
		t.Close()
	}
	return receipts
}

// A group of letters that failed is divided by apartShrinks.
const apartShrinks = 16

// sendApart writes copies that did not go with the others, small ones before large ones: up to two alone, to see whether the
// topic takes any, and then groups that become smaller where they fail. A letter that fails alone, while others are
// written, keeps its own error. sendApart returns what keeps all copies from being written. sent says that others were written.
func (t *DeadLetterTopic) sendApart(ctx context.Context, letters []*lettercopy.Receipt, sent bool) *lettercopy.Failure {
	slices.SortStableFunc(letters, func(a, b *lettercopy.Receipt) int {
		return len(a.Letter.Record.Value) - len(b.Letter.Record.Value)
	})
	groups := slices.Collect(slices.Chunk(letters[:min(2, len(letters))], 1))
	groups = slices.AppendSeq(groups, slices.Chunk(letters[len(groups):], max(1, len(letters)/apartShrinks)))
	alone := 0
	for ; len(groups) > 0; groups = groups[1:] {
		group := groups[0]
		client, err := t.largeClient()
		if err != nil {
			return t.failure(err)
		}
		if len(group) > 1 {
			rest, _ := t.sendBatched(ctx, client, group)
			sent = sent || len(rest) < len(group)
			groups = slices.AppendSeq(groups, slices.Chunk(rest, max(1, len(group)/apartShrinks)))
			continue
		}
		r := group[0]
		if r.Err = t.sendAlone(ctx, client, r); r.Err == nil || isRefusal(r.Err) {
			sent = true
			continue
		}
		alone++
		if failure := t.failure(r.Err); failure.Class != lettercopy.Broker || ctx.Err() != nil || !sent && (alone == 2 || len(groups) == 1) {
			return failure
		}
	}
	return nil
}

// largeClient returns the client that takes large records.
func (t *DeadLetterTopic) largeClient() (_ *kgo.Client, err error) {
	if t.single == nil {
		t.single, err = t.newClient(singleBytes)
	}
	return t.single, err
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
		kgo.RecordRetries(copyRetries),
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

// sendBatched writes copies at once. It returns those that failed, in their order, and an error of one of them: a refusal only
// where all errors are.
func (t *DeadLetterTopic) sendBatched(ctx context.Context, client *kgo.Client, receipts []*lettercopy.Receipt) (rest []*lettercopy.Receipt, cause error) {
	type result struct {
		to  *lettercopy.Receipt
		r   *kgo.Record
		err error
	}
	results := make(chan result, len(receipts))
	for _, to := range receipts {
		client.Produce(ctx, t.copyOf(to.Letter, ""), func(r *kgo.Record, err error) { results <- result{to, r, err} })
	}
	for range receipts {
		done := <-results // each comes: the client ends records with ctx and after its delivery timeout
		done.to.Err, done.to.Partition, done.to.Offset = done.err, done.r.Partition, done.r.Offset
		if done.err != nil && (cause == nil || isRefusal(cause)) {
			cause = done.err
		}
	}
	for _, r := range receipts {
		if r.Err != nil {
			rest = append(rest, r)
		}
	}
	return rest, cause
}

// sendAlone writes a copy that failed among others: whole, or else
// without its value. It returns nil when the letter is dealt with.
func (t *DeadLetterTopic) sendAlone(ctx context.Context, client *kgo.Client, r *lettercopy.Receipt) error {
	err := t.sendOne(ctx, client, r, "")
	if !isTooLarge(err) {
		return err
	}
	r.Form, r.Reason = lettercopy.WithoutValue, err.Error()
	if err = t.sendOne(ctx, client, r, omittedBecause(r.Letter)); isTooLarge(err) {
		r.Form, r.Reason = lettercopy.NoCopy, "key and headers alone are too large for the topic: "+err.Error()
		return nil
	}
	return err
}

func (t *DeadLetterTopic) sendOne(ctx context.Context, client *kgo.Client, r *lettercopy.Receipt, valueOmitted string) error {
	written, err := client.ProduceSync(ctx, t.copyOf(r.Letter, valueOmitted)).First()
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
