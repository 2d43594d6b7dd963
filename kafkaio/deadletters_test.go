package kafkaio_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

const deadLetters = topic + "-dlt"

func deadLetterTopic(t *testing.T, c *kafkatest.Cluster) *kafkaio.DeadLetterTopic {
	t.Helper()
	dlt, err := kafkaio.NewDeadLetterTopic(clientConfig(c), deadLetters, testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dlt.Close)
	return dlt
}

func createDeadLetters(t *testing.T, c *kafkatest.Cluster, partitions int32, parameters map[string]*string) {
	t.Helper()
	if resp, err := c.Admin.CreateTopic(t.Context(), partitions, 1, parameters, deadLetters); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
}

// letter is a dead letter of a record with nothing usual about it.
func letter(id int64, partition int32) *lettercopy.Letter {
	return &lettercopy.Letter{
		ID: id, Group: group, Attempts: 1, Reason: "invalid", Detail: "unreadable",
		Record: projection.Record{
			TopicPartition: projection.TopicPartition{Topic: topic, Partition: partition}, Offset: 1<<40 + id,
			Timestamp: time.Date(2020, 2, 2, 2, 2, 2, 222e6, time.UTC),
			Value:     []byte("\x7b\x22a\x22\x3a\xff\xfe\x7d"),
			Headers:   []projection.Header{{Key: "trace", Value: []byte{}}, {Key: "trace"}, {Key: "trace", Value: []byte("x")}},
		},
		FirstFailedAt: time.Date(2026, 1, 1, 10, 0, 0, 1000, time.UTC), LastFailedAt: time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC),
	}
}

// copies reads the n records that a partition of the dead-letter topic holds.
func copies(t *testing.T, c *kafkatest.Cluster, partition int32, n int) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		deadLetters: {partition: kgo.NewOffset().AtStart()},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d copies in partition %d", len(records), n, partition)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

func mustSend(t *testing.T, dlt *kafkaio.DeadLetterTopic, letters ...*lettercopy.Letter) []lettercopy.Receipt {
	t.Helper()
	receipts := dlt.Send(t.Context(), letters)
	for _, r := range receipts {
		if r.Err != nil {
			t.Fatalf("letter %d: %v", r.Letter.ID, r.Err)
		}
	}
	return receipts
}

func TestACopyIsTheRecordThatFailed(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 3, nil)
	l := letter(7, 2)
	receipt := mustSend(t, deadLetterTopic(t, c), l)[0]
	if receipt.Form != lettercopy.Whole || receipt.Partition != 2 || receipt.Offset != 0 {
		t.Errorf("receipt %+v", receipt)
	}
	got := copies(t, c, 2, 1)[0]
	if got.Key != nil || !bytes.Equal(got.Value, l.Record.Value) {
		t.Errorf("key %q (nil: %v), value %q", got.Key, got.Key == nil, got.Value)
	}
	if time.Since(got.Timestamp) > time.Hour {
		t.Errorf("the copy's timestamp is %v: retention would remove it", got.Timestamp)
	}
	want := []kgo.RecordHeader{
		{Key: "trace", Value: []byte{}}, {Key: "trace"}, {Key: "trace", Value: []byte("x")},
		{Key: "kafka_dlt-original-topic", Value: []byte(topic)},
		{Key: "kafka_dlt-original-partition", Value: []byte{0, 0, 0, 2}},
		{Key: "kafka_dlt-original-offset", Value: []byte{0, 0, 1, 0, 0, 0, 0, 7}},
		{Key: "kafka_dlt-original-timestamp", Value: []byte{0, 0, 1, 0x70, 0x03, 0xa2, 0x22, 0x6e}},
		{Key: "kafka_dlt-original-timestamp-type", Value: []byte("CreateTime")},
		{Key: "kafka_dlt-original-consumer-group", Value: []byte(group)},
		{Key: "kafka_dlt-exception-fqcn", Value: []byte("orderprojector.invalid")},
		{Key: "kafka_dlt-exception-message", Value: []byte("unreadable")},
		{Key: "op-dead-letter-id", Value: []byte("7")},
		{Key: "op-reason", Value: []byte("invalid")},
		{Key: "op-detail", Value: []byte("unreadable")},
		{Key: "op-attempts", Value: []byte("1")},
		{Key: "op-first-failed-at", Value: []byte("2026-01-01T10:00:00.000001Z")},
		{Key: "op-last-failed-at", Value: []byte("2026-01-02T10:00:00Z")},
	}
	if diff := cmp.Diff(want, got.Headers); diff != "" { // cmp tells nil from empty
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestCopiesKeepEmptyKeysAndTheBrokersClock(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 1, nil)
	l := letter(1, 0)
	l.Record.Key, l.Record.Value, l.Record.LogAppendTime = []byte{}, []byte{}, true
	l.OrderID, l.EventID, l.Version = "o-1", "e-1", 3
	mustSend(t, deadLetterTopic(t, c), l)
	got := copies(t, c, 0, 1)[0]
	if got.Key == nil || got.Value == nil {
		t.Errorf("key nil: %v, value nil: %v; both were empty", got.Key == nil, got.Value == nil)
	}
	for name, want := range map[string]string{
		"kafka_dlt-original-timestamp-type": "LogAppendTime", "op-order-id": "o-1", "op-event-id": "e-1", "op-version": "3",
	} {
		if have := headerValues(got, name); !slices.Equal(have, []string{want}) {
			t.Errorf("header %s is %q", name, have)
		}
	}
}

func headerValues(r *kgo.Record, name string) (values []string) {
	for _, h := range r.Headers {
		if h.Key == name {
			values = append(values, string(h.Value))
		}
	}
	return values
}

// A record that comes from a dead-letter topic itself keeps where it came from
// first; what says why it died is this death's.
func TestEveryLapReplacesOurHeaders(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 1, nil)
	l := letter(2, 0)
	l.Attempts = 4
	l.Record.Headers = []projection.Header{
		{Key: "op-reason", Value: []byte("conflict")},
		{Key: "kafka_dlt-original-topic", Value: []byte("first")},
		{Key: "kafka_dlt-exception-stacktrace", Value: []byte("of another death")},
		{Key: "op-tenant", Value: []byte("theirs")},
		{Key: "kafka_dlt-exception-fqcn", Value: []byte("java.lang.Error")},
		{Key: "op-value-omitted", Value: []byte("of an earlier lap")},
	}
	mustSend(t, deadLetterTopic(t, c), l)
	got := copies(t, c, 0, 1)[0]
	for name, want := range map[string][]string{
		"kafka_dlt-original-topic":       {"first"},
		"kafka_dlt-original-offset":      nil,
		"kafka_dlt-exception-fqcn":       {"orderprojector.invalid"},
		"kafka_dlt-exception-stacktrace": nil,
		"op-reason":                      {"invalid"},
		"op-attempts":                    {"4"},
		"op-tenant":                      {"theirs"},
		"op-value-omitted":               nil,
	} {
		if have := headerValues(got, name); !slices.Equal(have, want) {
			t.Errorf("header %s is %q, want %q", name, have, want)
		}
	}
}

func TestCopiesFindAPartitionInASmallerTopic(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 2, nil)
	keyless, keyed, same := letter(1, 5), letter(2, 5), letter(3, 1)
	keyed.Record.Key = []byte("o-1")
	receipts := mustSend(t, deadLetterTopic(t, c), keyless, keyed, same)
	want := int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte("o-1")}, 2))
	if got := []int32{receipts[0].Partition, receipts[1].Partition, receipts[2].Partition}; !slices.Equal(got, []int32{0, want, 1}) {
		t.Errorf("partitions %v, want [0 %d 1]", got, want)
	}
}

func TestCopiesWaitForTheirTopicAndFollowIt(t *testing.T) {
	c := kafkatest.Start(t)
	dlt := deadLetterTopic(t, c)
	wait := func() {
		t.Helper()
		r := dlt.Send(t.Context(), []*lettercopy.Letter{letter(1, 5)})[0]
		var failure *lettercopy.Failure
		if !errors.As(r.Err, &failure) || failure.Class != lettercopy.TopicMissing || !strings.Contains(failure.Hint(), "create the topic") {
			t.Fatalf("receipt %+v", r)
		}
	}
	wait()
	createDeadLetters(t, c, 6, nil)
	if r := mustSend(t, dlt, letter(1, 5))[0]; r.Partition != 5 {
		t.Errorf("receipt %+v", r)
	}
	if resp, err := c.Admin.DeleteTopics(t.Context(), deadLetters); err != nil || resp[deadLetters].Err != nil {
		t.Fatal(err, resp)
	}
	wait()
	createDeadLetters(t, c, 1, nil)
	if r := mustSend(t, dlt, letter(1, 5))[0]; r.Partition != 0 {
		t.Errorf("receipt %+v", r)
	}
	copies(t, c, 0, 1)
}

func TestForbiddenCopiesSayWhatToGrant(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 1, nil)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range p.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = partition.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	r := deadLetterTopic(t, c).Send(t.Context(), []*lettercopy.Letter{letter(1, 0)})[0]
	var failure *lettercopy.Failure
	if !errors.As(r.Err, &failure) || failure.Class != lettercopy.Forbidden || !strings.Contains(failure.Hint(), "WRITE") {
		t.Fatalf("receipt %+v", r)
	}
}

// What is too large for the topic is sent without its value; the ones beside it are whole.
func TestCopiesThatAreTooLarge(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("20000")})
	large, small, hopeless := letter(1, 0), letter(2, 0), letter(3, 0)
	large.Record.Value, large.Record.Key = noise(30_000), []byte("o-1")
	hopeless.Record.Key = noise(30_000)
	receipts := mustSend(t, deadLetterTopic(t, c), large, small, hopeless)
	for i, want := range []lettercopy.Form{lettercopy.WithoutValue, lettercopy.Whole, lettercopy.NoCopy} {
		if receipts[i].Form != want {
			t.Errorf("letter %d: %+v, want %s", i+1, receipts[i], want)
		}
	}
	if !strings.Contains(receipts[0].Reason, "MESSAGE_TOO_LARGE") {
		t.Errorf("reason %q", receipts[0].Reason)
	}
	for _, r := range copies(t, c, 0, 2) {
		if headerValues(r, "op-dead-letter-id")[0] == "2" {
			continue
		}
		omitted := headerValues(r, "op-value-omitted")
		if r.Value != nil || string(r.Key) != "o-1" || len(omitted) != 1 || !strings.Contains(omitted[0], "30000 bytes") ||
			!strings.Contains(omitted[0], "dead letter 1") {
			t.Errorf("key %q, %d bytes of value, %q", r.Key, len(r.Value), omitted)
		}
	}
}

// A topic that takes large records gets them whole.
func TestLargeCopiesInALargeTopic(t *testing.T) {
	c := kafkatest.Start(t)
	createDeadLetters(t, c, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("5000000")})
	large := letter(1, 0)
	large.Record.Value = noise(3 << 20)
	if r := mustSend(t, deadLetterTopic(t, c), large, letter(2, 0))[0]; r.Form != lettercopy.Whole {
		t.Errorf("receipt %+v", r)
	}
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	for i, x := 0, uint32(1); i < n; i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

func TestCopiesOfABrokerThatIsAway(t *testing.T) {
	c := kafkatest.Start(t, kfake.SeedTopics(1, deadLetters))
	dlt := deadLetterTopic(t, c)
	mustSend(t, dlt, letter(1, 0))
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := dlt.Send(ctx, []*lettercopy.Letter{letter(2, 0)})[0]
	var failure *lettercopy.Failure
	if !errors.As(r.Err, &failure) || failure.Class != lettercopy.Broker {
		t.Fatalf("receipt %+v", r)
	}
}
