//go:build unix

package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// stamped is a record with a timestamp that the client library cannot write.
type stamped struct {
	record *kgo.Record
	millis int64
}

// recordBatch writes records as one batch of Kafka's format, compressed or not.
func recordBatch(t testing.TB, compressed bool, records ...stamped) []byte {
	t.Helper()
	var body []byte
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records) - 1), NumRecords: int32(len(records)),
		FirstTimestamp: records[0].millis, MaxTimestamp: records[0].millis, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}
	for i, r := range records {
		batch.MaxTimestamp = max(batch.MaxTimestamp, r.millis)
		one := binary.AppendVarint([]byte{0}, r.millis-batch.FirstTimestamp)
		one = binary.AppendVarint(one, int64(i))
		one = append(binary.AppendVarint(one, int64(len(r.record.Key))), r.record.Key...)
		one = append(binary.AppendVarint(one, int64(len(r.record.Value))), r.record.Value...)
		one = binary.AppendVarint(one, 0) // headers
		body = append(binary.AppendVarint(body, int64(len(one))), one...)
	}
	batch.Records = body
	if compressed {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(body)
		must(t, err)
		must(t, w.Close())
		batch.Attributes, batch.Records = 1, b.Bytes()
	}
	const lengthEnds, crcEnds = 12, 21
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-lengthEnds))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[crcEnds:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// produceBatch sends a batch to partition 0 as it is.
func (s *stage) produceBatch(raw []byte) {
	s.t.Helper()
	topics, err := s.admin.ListTopics(s.t.Context(), s.topic)
	must(s.t, err)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	topic, partition := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	topic.Topic, topic.TopicID = s.topic, topics[s.topic].ID
	partition.Records = raw
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	resp, err := s.kafka.Broker(int(topics[s.topic].Partitions[0].Leader)).Request(s.t.Context(), req)
	must(s.t, err)
	answer := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		s.t.Fatalf("producing a batch: %v (%v)", err, answer.ErrorMessage)
	}
}

// Kafka's timestamps are 64 bits of milliseconds, and any of them is kept exactly: where records wait, in letters, in
// their copies, and in what is printed. Whatever the year, the records are decided and the partition is healthy.
func TestTimestampsOfAnyYearAreKeptExactly(t *testing.T) {
	t.Parallel()
	const anyTime = "9223372036854775807"
	s := newStage(t, stageConfig{Topic: []string{"message.timestamp.after.max.ms=" + anyTime, "message.timestamp.before.max.ms=" + anyTime}})
	testenv.CreateTopic(t, s.brokers, s.deadLetterTopic(), 1)
	times := projectiontest.KafkaTimes()
	var want []int64 // by offset
	var together []stamped
	for i, millis := range times {
		bad, early := stamped{record(fmt.Sprintf("bad-%02d", i), "no JSON"), millis}, stamped{packed(fmt.Sprintf("early-%02d", i), 2), millis}
		s.produceBatch(recordBatch(t, false, bad))
		s.produceBatch(recordBatch(t, true, early))
		together = append(together, stamped{record(fmt.Sprintf("bad-together-%02d", i), "no JSON"), millis})
		want = append(want, millis, millis)
	}
	s.produceBatch(recordBatch(t, false, together...))
	s.produceBatch(recordBatch(t, true, together...))
	want = append(append(want, times...), times...)

	p := s.start()
	s.awaitDrained()
	p.awaitHTTP("/healthz/consumption", 200, "")
	s.judge()

	const stored = `coalesce(kafka_timestamp_ms, (extract(epoch FROM kafka_timestamp) * 1000)::bigint)`
	got := make([]int64, len(want))
	rows, err := s.pool.Query(t.Context(), `SELECT kafka_offset, `+stored+` FROM dead_letters UNION ALL SELECT kafka_offset, `+stored+` FROM parked_events`)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var offset, millis int64
		must(t, rows.Scan(&offset, &millis))
		got[offset] = millis
	}
	must(t, rows.Err())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("letters and parked events (-sent +stored):\n%s", diff)
	}
	if n := ask[int](s, `SELECT count(*) FROM parked_events`); n != len(times) {
		t.Errorf("%d events are parked, want %d", n, len(times))
	}

	for offset, r := range s.read() {
		if got := r.Timestamp.UnixMilli(); got != want[offset] {
			t.Errorf("offset %d is read with timestamp %d, want %d", offset, got, want[offset])
		}
	}
	for _, c := range s.copies(3 * len(times)) {
		offset := int64(binary.BigEndian.Uint64(header(t, c, "kafka_dlt-original-offset")))
		if got := int64(binary.BigEndian.Uint64(header(t, c, "kafka_dlt-original-timestamp"))); got != want[offset] {
			t.Errorf("the copy of offset %d says %d, want %d", offset, got, want[offset])
		}
	}

	code, out, stderr := s.command("dlq", "export")
	if code != 0 {
		t.Fatalf("dlq export: exit code %d: %s", code, stderr)
	}
	type exported struct {
		Offset    int64   `json:"kafka_offset"`
		Millis    int64   `json:"kafka_timestamp_ms"`
		Timestamp *string `json:"kafka_timestamp"`
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3*len(times) {
		t.Errorf("%d letters are exported, want %d", len(lines), 3*len(times))
	}
	for _, line := range lines {
		var e exported
		must(t, json.Unmarshal([]byte(line), &e))
		if e.Millis != want[e.Offset] || (e.Timestamp != nil) != (e.Millis >= -62_167_219_200_000 && e.Millis < 253_402_300_800_000) {
			t.Errorf("offset %d is exported with %d (%v), want %d", e.Offset, e.Millis, e.Timestamp, want[e.Offset])
		}
	}
	latest := ask[int64](s, `SELECT min(id) FROM dead_letters WHERE kafka_offset = $1`, 2*slices.Index(times, 1<<63-1))
	for _, output := range []string{"table", "json", "yaml"} {
		if code, out, stderr := s.command("dlq", "show", fmt.Sprint(latest), "--output", output); code != 0 || !strings.Contains(out, "9223372036854775807") {
			t.Errorf("dlq show --output %s: exit code %d: %s %s", output, code, out, stderr)
		}
	}

	// What waited goes on, with the time that it had.
	for i := range times {
		s.produce(created(fmt.Sprintf("early-%02d", i)))
	}
	s.awaitDrained()
	s.judge()
	if n := ask[int](s, `SELECT count(*) FROM dead_letters WHERE reason = 'illegal'`); n != len(times) {
		t.Errorf("%d of %d events were decided after their wait", n, len(times))
	}
}
