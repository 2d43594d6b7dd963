//go:build unix

package integration_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// poison is a record that nobody can read, for a partition.
func poison(partition int32) *kgo.Record {
	return &kgo.Record{Partition: partition, Value: []byte("\x7b\x22a\x22\x3a\xff\xfe\x7d")}
}

func (s *stage) deadLetterTopic() string { return s.topic + "-dlt" }

// copies waits for n copies in the dead-letter topic and returns them.
func (s *stage) copies(n int) []*kgo.Record {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumeTopics(s.deadLetterTopic()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	must(s.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("%d of %d copies in %s", len(records), n, s.deadLetterTopic())
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// header returns the value of a header that must be there once.
func header(t testing.TB, r *kgo.Record, name string) []byte {
	t.Helper()
	var found [][]byte
	for _, h := range r.Headers {
		if h.Key == name {
			found = append(found, h.Value)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the copy has %d headers %s", len(found), name)
	}
	return found[0]
}

// awaitCopied waits until no copy is pending.
func (s *stage) awaitCopied() {
	s.t.Helper()
	s.awaitSQL(`SELECT count(*) > 0 AND bool_and(copied_attempts = attempts) FROM letter_copies WHERE consumer_group = $1`, s.group)
}

// copyOf returns the copy of the record at an offset.
func copyOf(t testing.TB, copies []*kgo.Record, offset int64) *kgo.Record {
	t.Helper()
	for _, r := range copies {
		if int64(binary.BigEndian.Uint64(header(t, r, "kafka_dlt-original-offset"))) == offset {
			return r
		}
	}
	t.Fatalf("no copy of offset %d", offset)
	return nil
}

// While the dead-letter topic is missing only the copy waits. Once it is there, with fewer
// partitions than the events have, there is a copy that says where its record came from.
func TestCopiesWaitForAMissingTopic(t *testing.T) {
	s := newStage(t, stageConfig{Partitions: 6})
	program := s.spawn()
	records := []*kgo.Record{poison(5)}
	for i := range 5 {
		records = append(records, on(5, created(fmt.Sprintf("o-%d", i))))
	}
	s.produce(records...)
	s.awaitDrained()
	awaitMetric(t, program, func(v float64) bool { return v > 0 }, "orderprojector_dead_letter_copies_failures_total", `class="topic_missing"`)
	awaitMetric(t, program, func(v float64) bool { return v == 1 }, "orderprojector_dead_letter_copies_pending")
	if status, body := get(program.HTTPAddr(), "/healthz/consumption"); status != 200 {
		t.Errorf("consumption: %d %s", status, body)
	}
	program.Kill()
	program.Wait(patience)

	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	program = s.spawn()
	got := s.copies(1)[0]
	s.awaitCopied()
	if got.Partition != 0 || !bytes.Equal(got.Value, records[0].Value) {
		t.Errorf("partition %d, value %q", got.Partition, got.Value)
	}
	if from := binary.BigEndian.Uint32(header(t, got, "kafka_dlt-original-partition")); from != 5 {
		t.Errorf("original partition %d", from)
	}
	if count := ask[int64](s, `SELECT count(*) FROM orders`); count != 5 {
		t.Errorf("%d orders", count)
	}
	awaitMetric(t, program, func(v float64) bool { return v == 0 }, "orderprojector_dead_letter_copies_pending")
	s.judge()
}

// The topic that takes copies may be made anew under the running program.
func TestCopiesFollowATopicMadeAnew(t *testing.T) {
	s := newStage(t, stageConfig{Partitions: 6})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 6)
	s.start()
	s.produce(poison(5))
	if got := s.copies(1)[0]; got.Partition != 5 {
		t.Errorf("partition %d of 6", got.Partition)
	}
	s.awaitCopied()

	deleted, err := s.admin.DeleteTopics(t.Context(), s.deadLetterTopic())
	must(t, err)
	must(t, deleted[s.deadLetterTopic()].Err)
	s.produce(poison(5))
	s.awaitDrained()
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	if got := s.copies(1)[0]; got.Partition != 0 {
		t.Errorf("partition %d of 1", got.Partition)
	}
	s.awaitCopied()
	s.judge()
}

// A copy is the record that failed: key, value and headers to the byte, nil and
// empty kept apart, and where it came from beside it. Laps replace our headers.
func TestACopyIsTheRecordThatFailed(t *testing.T) {
	s := newStage(t, stageConfig{Partitions: 2, Topic: []string{"message.timestamp.before.max.ms=9223372036854775807"}})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 2)
	at := time.Date(2020, 2, 2, 2, 2, 2, 222e6, time.UTC)
	unreadable := poison(1)
	unreadable.Timestamp = at
	unreadable.Headers = []kgo.RecordHeader{{Key: "trace", Value: []byte{}}, {Key: "trace"}, {Key: "trace", Value: []byte("x")}}
	illegal := on(1, record("o-1", `{ "event_id":"e-1", "order_id":"o-1","type":"OrderPaid.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z",`+
		`"data":{"payment_id":"p","amount":{"amount":1.10,"currency":"EUR"}, "unknown":{"x":1e2}} , "more": null}`))
	empty := on(1, &kgo.Record{Key: []byte{}, Value: []byte{}})
	s.produce(unreadable, illegal, empty)
	s.start()
	s.awaitCopied()

	for lap := 1; lap <= 3; lap++ {
		if lap > 1 {
			s.exec(`UPDATE dead_letters SET attempts = $1`, lap)
			s.awaitCopied()
		}
		all := s.copies(3 * lap)
		if len(all) != 3*lap {
			t.Fatalf("%d copies after lap %d", len(all), lap)
		}
		for i, sent := range []*kgo.Record{unreadable, illegal, empty} {
			got := copyOf(t, all[3*(lap-1):], int64(i))
			type content struct {
				Partition  int32
				Key, Value []byte
				Headers    []kgo.RecordHeader
			}
			// cmp tells nil from empty.
			if diff := cmp.Diff(content{1, sent.Key, sent.Value, append([]kgo.RecordHeader{}, sent.Headers...)},
				content{got.Partition, got.Key, got.Value, got.Headers[:len(sent.Headers)]}); diff != "" {
				t.Errorf("record %d, lap %d (-sent +copied):\n%s", i, lap, diff)
			}
			for name, want := range map[string][]byte{
				"kafka_dlt-original-topic":          []byte(s.topic),
				"kafka_dlt-original-partition":      {0, 0, 0, 1},
				"kafka_dlt-original-offset":         {0, 0, 0, 0, 0, 0, 0, byte(i)},
				"kafka_dlt-original-timestamp":      binary.BigEndian.AppendUint64(nil, uint64(sent.Timestamp.UnixMilli())),
				"kafka_dlt-original-timestamp-type": []byte("CreateTime"),
				"kafka_dlt-original-consumer-group": []byte(s.group),
				"op-attempts":                       fmt.Append(nil, lap),
			} {
				if have := header(t, got, name); !bytes.Equal(have, want) {
					t.Errorf("record %d, lap %d: header %s is %q, want %q", i, lap, name, have, want)
				}
			}
		}
	}
	if name := header(t, copyOf(t, s.copies(3), 1), "kafka_dlt-exception-fqcn"); string(name) != "orderprojector.illegal" {
		t.Errorf("exception %q", name)
	}
}

func TestCopiesOfATopicOnTheBrokersClock(t *testing.T) {
	s := newStage(t, stageConfig{Topic: []string{"message.timestamp.type=LogAppendTime"}})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	s.produce(poison(0))
	s.start()
	if got := header(t, s.copies(1)[0], "kafka_dlt-original-timestamp-type"); string(got) != "LogAppendTime" {
		t.Errorf("timestamp type %q", got)
	}
}

// A copy that is too large for its topic goes without its value; it is tried once.
func TestACopyThatIsTooLarge(t *testing.T) {
	s := newStage(t, stageConfig{})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1, "max.message.bytes=4000")
	large := poison(0)
	large.Value = make([]byte, 20_000)
	for i := range large.Value {
		large.Value[i] = byte(rand.Uint32())
	}
	small := poison(0)
	s.produce(large, small)
	s.start()
	s.awaitCopied()
	for _, got := range s.copies(2) {
		if binary.BigEndian.Uint64(header(t, got, "kafka_dlt-original-offset")) == 1 {
			if !bytes.Equal(got.Value, small.Value) {
				t.Errorf("the small one's copy is %q", got.Value)
			}
			continue
		}
		if got.Value != nil {
			t.Errorf("the large one's copy has %d bytes", len(got.Value))
		}
		want := fmt.Sprintf("the value of 20000 bytes is too large for this topic; orderprojector has it as dead letter %s", header(t, got, "op-dead-letter-id"))
		if why := header(t, got, "op-value-omitted"); string(why) != want {
			t.Errorf("why: %q", why)
		}
	}
	if failures := ask[int64](s, `SELECT sum(failures)::bigint FROM letter_copies`); failures != 0 {
		t.Errorf("%d failures are kept", failures)
	}
}

// A topic that the program may not write to delays the copy alone, until the grant comes.
func TestCopiesWaitForAGrant(t *testing.T) {
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Secure: true, Settings: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true",
	}})
	s := newStage(t, stageConfig{Brokers: kafka.Brokers()})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	denial := kadm.NewACLs().Topics(s.deadLetterTopic()).ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral).
		Operations(kmsg.ACLOperationWrite).Deny("User:" + testenv.SASLUser).DenyHosts()
	acls, err := s.admin.CreateACLs(t.Context(), denial)
	must(t, err)
	must(t, acls[0].Err)
	s.programBrokers = kafka.Secure().Brokers("SASL_PLAINTEXT")
	program := s.start(func(c *config.Config) {
		c.Kafka.SecurityProtocol = "SASL_PLAINTEXT"
		c.Kafka.SASL = config.SASL{Mechanism: "SCRAM-SHA-256", Username: testenv.SASLUser, Password: config.NewSecret(testenv.SASLPassword)}
	})
	s.produce(poison(0), created("o-1"))
	s.awaitDrained()
	awaitMetric(t, program, func(v float64) bool { return v > 0 }, "orderprojector_dead_letter_copies_failures_total", `class="forbidden"`)
	_, err = s.admin.DeleteACLs(t.Context(), denial)
	must(t, err)
	s.copies(1)
	s.awaitCopied()
	s.judge()
}

// The broker closes the connection at the copy of one letter, which is larger than its record. The copies of the others are written.
func TestACopyAtWhichTheBrokerClosesTheConnection(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Brokers: smallRequests(t).Brokers()})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	s.produce(&kgo.Record{Key: []byte("large"), Value: []byte(noise(299_500))})
	for i := range 20 {
		s.produce(&kgo.Record{Key: fmt.Append(nil, "small-", i), Value: []byte("no event")})
	}
	program := s.spawn()
	s.awaitDrained()
	s.awaitSQL(`SELECT count(*) = 20 FROM letter_copies WHERE copied_attempts = attempts AND form = 'whole'`)
	s.awaitSQL(`SELECT count(*) = 1 FROM letter_copies WHERE copied_attempts = 0 AND failures > 0 AND bytes > 299000`)
	awaitMetric(t, program, func(v float64) bool { return v == 1 }, "orderprojector_dead_letter_copies_pending")
	if n := len(s.copies(20)); n != 20 {
		t.Errorf("%d copies", n)
	}
}
