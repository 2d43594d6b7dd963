package kafkaio_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/outbox/relay"
	"github.com/orderprojector/orderprojector/projection"
)

func outboxTopic(t *testing.T, c *kafkatest.Cluster) *kafkaio.OutboxTopic {
	t.Helper()
	o, err := kafkaio.NewOutboxTopic(clientConfig(c), topic, testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// publish publishes records at once and returns what became of each.
func publish(t *testing.T, o *kafkaio.OutboxTopic, records ...relay.Record) []error {
	t.Helper()
	type result struct {
		i   int
		err error
	}
	results := make(chan result, 2*len(records))
	for i, r := range records {
		o.Publish(r, func(err error) { results <- result{i, err} })
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make([]error, len(records))
	for range records {
		select {
		case r := <-results:
			errs[r.i] = r.err
		case <-ctx.Done():
			t.Fatal("a record was neither published nor refused")
		}
	}
	return errs
}

// publishAlone publishes a record over a connection of its own and returns what became of it.
func publishAlone(o *kafkaio.OutboxTopic, r relay.Record) error {
	errs := make(chan []error)
	o.PublishApart([]relay.Record{r}, func(e []error) { errs <- e })
	return (<-errs)[0]
}

// A batch that is too large for its topic is nobody's fault: apart, only a record that is too large by itself is refused.
func TestOutboxBatchesThatAreTooLarge(t *testing.T) {
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	o := outboxTopic(t, c)
	if err := o.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	// After the topic was looked at.
	if _, err := c.Admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("4000")}}, topic); err != nil {
		t.Fatal(err)
	}
	var records []relay.Record
	for i := range 60 {
		records = append(records, relay.Record{Key: fmt.Append(nil, "o-", i), Value: noise(500)})
	}
	records = append(records, relay.Record{Key: []byte("o-large"), Value: noise(9000)}, relay.Record{Key: []byte("o-huge"), Value: noise(2 << 20)})
	if limit, err := o.MaxRecordBytes(t.Context()); limit != 4000 || err != nil {
		t.Errorf("the topic takes %d bytes: %v", limit, err)
	}
	for i, err := range publish(t, o, records...) {
		var refusal *relay.Refusal
		if err != nil && !errors.As(err, &refusal) {
			t.Errorf("record %d among others: %v", i, err)
		}
		err = publishAlone(o, records[i])
		large := i >= 60
		if large != errors.As(err, &refusal) || large && (refusal.Reason != relay.TooLarge || !errors.Is(err, kerr.MessageTooLarge)) || !large && err != nil {
			t.Errorf("record %d: %v", i, err)
		}
	}
}

// Errors are told apart by Kafka's code: what is the record's fault, and what is not.
func TestOutboxFailuresByCode(t *testing.T) {
	for _, test := range []struct {
		code   *kerr.Error
		class  relay.Class // of a failure
		reason relay.Reason
		hint   string
	}{
		{code: kerr.TopicAuthorizationFailed, class: relay.Forbidden, hint: "WRITE"},
		{code: kerr.InvalidRequiredAcks, class: relay.Broker},
		{code: kerr.InvalidTimestamp, class: relay.Broker},
		{code: kerr.InvalidRecord, reason: relay.Refused},
		{code: kerr.PolicyViolation, reason: relay.Refused},
		{code: kerr.MessageTooLarge, reason: relay.TooLarge},
		{code: kerr.RecordListTooLarge, reason: relay.TooLarge},
	} {
		t.Run(test.code.Message, func(t *testing.T) {
			c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				p := req.(*kmsg.ProduceRequest)
				resp := p.ResponseKind().(*kmsg.ProduceResponse)
				for _, topic := range p.Topics {
					rt := kmsg.NewProduceResponseTopic()
					rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
					for _, partition := range topic.Partitions {
						rp := kmsg.NewProduceResponseTopicPartition()
						rp.Partition, rp.ErrorCode = partition.Partition, test.code.Code
						rt.Partitions = append(rt.Partitions, rp)
					}
					resp.Topics = append(resp.Topics, rt)
				}
				return resp, nil, true
			})
			o := outboxTopic(t, c)
			if err := o.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			record := relay.Record{Key: []byte("o-1"), Value: []byte("{}"), Headers: []projection.Header{{Key: "a", Value: []byte("b")}}}
			for _, err := range []error{publish(t, o, record)[0], publishAlone(o, record)} {
				var failure *relay.Failure
				var refusal *relay.Refusal
				switch {
				case test.reason != "":
					if !errors.As(err, &refusal) || refusal.Reason != test.reason {
						t.Errorf("%v is not a refusal: %s", err, test.reason)
					}
				case !errors.As(err, &failure) || failure.Class != test.class || !strings.Contains(failure.Hint(), test.hint):
					t.Errorf("%v is not a failure of class %s", err, test.class)
				}
			}
		})
	}
}

// Without its topic nothing is published, and nothing blamed; what is in flight at the end fails.
func TestOutboxTopicThatIsMissing(t *testing.T) {
	c := kafkatest.Start(t)
	o := outboxTopic(t, c)
	var failure *relay.Failure
	if err := o.Prepare(t.Context()); !errors.As(err, &failure) || failure.Class != relay.TopicMissing {
		t.Errorf("preparing: %v", err)
	}
	if err := publish(t, o, relay.Record{Key: []byte("o-1")})[0]; !errors.As(err, &failure) {
		t.Errorf("publishing: %v", err)
	}
	if resp, err := c.Admin.CreateTopic(t.Context(), 2, 1, nil, topic); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	if err := o.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, o, relay.Record{Key: []byte("o-1"), Value: []byte("{}")})[0]; err != nil {
		t.Error(err)
	}
	o.Close()
	if err := publish(t, o, relay.Record{Key: []byte("o-1"), Value: []byte("{}")})[0]; !errors.As(err, &failure) {
		t.Errorf("after the end: %v", err)
	}
}
