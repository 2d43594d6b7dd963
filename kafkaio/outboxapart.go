package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/outbox/relay"
)

// PublishApart implements relay.Topic.
func (t *OutboxTopic) PublishApart(records []relay.Record, done func([]error)) {
	t.apart.Go(func() { done(t.publishApart(records)) })
}

func (t *OutboxTopic) publishApart(records []relay.Record) []error {
	t.mu.Lock()
	most := t.requestBytes
	t.mu.Unlock()
	if len(records) == 1 {
		most = singleBytes
	}
	errs := make([]error, len(records))
	var closing closedRequests
	client, err := t.newClient(most, kgo.RecordRetries(0), kgo.WithHooks(&closing))
	if err != nil {
		for i := range errs {
			errs[i] = t.failure(err)
		}
		return errs
	}
	var produced sync.WaitGroup
	for i, r := range records {
		produced.Add(1)
		client.Produce(t.ctx, t.record(r), func(_ *kgo.Record, err error) {
			errs[i] = err
			produced.Done()
		})
	}
	produced.Wait() // each comes: the client ends records after its delivery timeout
	client.Close()

	// Asked once, and only where nothing else says whose fault it is.
	answers := sync.OnceValue(func() error {
		i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		return t.answers(records[i].Key)
	})
	verdicts := make([]error, len(errs))
	for i, err := range errs {
		var code *kerr.Error
		switch {
		case err == nil:
		case isRefusal(err) && !errors.Is(err, kerr.InvalidTimestamp): // the time is the relay's own
			verdicts[i] = t.refusal(records[i], err)
		case errors.As(err, &code) && !faulty(code), answers() != nil:
			verdicts[i] = t.failure(err)
		default:
			fault := &relay.Fault{Closed: closing.some.Load(), Err: err}
			if fault.Closed {
				fault.Err = fmt.Errorf("the connection was closed before the acknowledgement (%w)", err)
			}
			verdicts[i] = fault
		}
	}
	if len(records) > 1 && closing.some.Load() {
		t.askForLess(records)
	}
	return verdicts
}

// faulty reports codes that a record may be the reason of. What is known of all others is that they are about the topic or its brokers.
func faulty(code *kerr.Error) bool {
	return errors.Is(code, kerr.UnknownServerError) || errors.Is(code, kerr.CorruptMessage)
}

// askForLess makes requests with several records smaller: the connection was closed at one.
func (t *OutboxTopic) askForLess(records []relay.Record) {
	total := 0
	for _, r := range records {
		total += batchBytes(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if less := max(outboxLeastBytes, min(t.requestBytes, int32(total))/2); less < t.requestBytes {
		t.requestBytes = less
	}
}

// answers returns nil when the broker that leads a key's partition answers a produce request without a record, on a new
// connection. Kafka refuses such a request by its code, and writes nothing.
func (t *OutboxTopic) answers(key []byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, outboxRequest)
	defer cancel()
	client, err := t.newClient(outboxBatchBytes)
	if err != nil {
		return err
	}
	defer client.Close()
	metadata, err := kadm.NewClient(client).Metadata(ctx, t.name)
	if err != nil {
		return err
	}
	topic := metadata.Topics[t.name]
	if len(topic.Partitions) == 0 {
		return errTopicMissing
	}
	partition := int32(kgo.StickyKeyPartitioner(nil).ForTopic(t.name).Partition(&kgo.Record{Key: key}, len(topic.Partitions)))
	empty := kmsg.NewProduceRequestTopicPartition()
	empty.Partition, empty.Records = partition, []byte{}
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.TopicID, of.Partitions = t.name, topic.ID, []kmsg.ProduceRequestTopicPartition{empty}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = -1, int32(outboxRequest.Milliseconds()), []kmsg.ProduceRequestTopic{of}
	response, err := client.Broker(int(topic.Partitions[partition].Leader)).Request(ctx, request)
	if err != nil {
		return err
	}
	for _, topic := range response.(*kmsg.ProduceResponse).Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && kerr.IsRetriable(err) {
				return err
			}
		}
	}
	return nil
}

// closedRequests notices that the other side closed the connection at a produce request.
type closedRequests struct{ some atomic.Bool }

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (c *closedRequests) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	err := e2e.WriteErr
	if err == nil {
		err = e2e.ReadErr
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if key == int16(kmsg.Produce) && errors.Is(err, closed) {
			c.some.Store(true)
		}
	}
}
