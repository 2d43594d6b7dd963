//go:build unix

package integration_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// damage flips a bit in the records of one batch, counted from 0, on the disk
// of a broker that is stopped for it in order.
func damage(t *testing.T, k *testenv.Kafka, topic string, partition int32, batch int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	k.Stop(ctx)
	flip(t, k.Segment(topic, partition), batch, 61+20, 0x10) // behind the header
	must(t, k.Start(ctx))
}

// flip flips a bit of one batch of a log segment.
func flip(t *testing.T, segment string, batch, at int, bit byte) {
	t.Helper()
	log, err := os.ReadFile(segment)
	must(t, err)
	begins := 0
	for range batch {
		begins += 12 + int(binary.BigEndian.Uint32(log[begins+8:]))
	}
	log[begins+at] ^= bit
	must(t, os.WriteFile(segment, log, 0o600))
}

// asOneBatch produces records as one batch.
func (s *stage) asOneBatch(records ...*kgo.Record) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Second))
	must(s.t, err)
	defer client.Close()
	for _, r := range records {
		r.Topic = s.topic
	}
	must(s.t, client.ProduceSync(s.t.Context(), records...).FirstErr())
}

// A bit of a batch flips on the broker's disk. The partition halts, and says which offsets cannot be
// read and which command goes on behind them. The other partition does not wait.
func TestDamagedBatchHaltsItsPartition(t *testing.T) {
	t.Parallel()
	k := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newStage(t, stageConfig{Brokers: k.Brokers(), Partitions: 2})
	s.produce(created("a"), on(1, created("d")))
	s.asOneBatch(created("b1"), created("b2"), created("b3"))
	s.produce(created("c"))
	damage(t, k, s.topic, 0, 1)

	p := s.spawn("--stall-limit=30s")
	awaitMetric(t, p, func(v float64) bool { return v == 1 }, "orderprojector_partition_halted", `partition="0"`)
	_, health := get(p.HTTPAddr(), "/healthz/consumption")
	var problem struct{ Detail string }
	must(t, json.Unmarshal([]byte(health), &problem))
	if !strings.Contains(problem.Detail, s.topic+"-0: offsets 1 to 3 cannot be read") {
		t.Errorf("health says: %s", problem.Detail)
	}
	s.produce(on(1, paid("d", 2)))
	s.awaitMarks(patience, map[int32]int64{0: 1, 1: 2})
	if _, other := metricOf(p, "orderprojector_partition_halted", `partition="1"`); !other {
		t.Error("partition 1 is not told of")
	}

	s.skipAsTold(problem.Detail, 0, 4)
	s.awaitDrained()
	awaitMetric(t, p, func(v float64) bool { return v == 0 }, "orderprojector_partition_halted")
	awaitStatus(t, p, "/healthz/consumption", 200)
	if got := ask[string](s, `SELECT string_agg(order_id || ':' || version, ' ' ORDER BY order_id) FROM orders`); got != "a:1 c:1 d:2" {
		t.Errorf("orders %q", got)
	}
	if lost := ask[int64](s, `SELECT lost_offsets FROM projection_watermarks WHERE kafka_partition = 0`); lost != 3 {
		t.Errorf("%d lost offsets are stored, want 3", lost)
	}
}

// skipAsTold runs the command that health names for a partition, word by word.
func (s *stage) skipAsTold(health string, partition int32, to int64) {
	s.t.Helper()
	pattern := fmt.Sprintf(`orderprojector (offsets skip --partition %d --to %d --comment) "([^"]+)" (--execute)`, partition, to)
	command := regexp.MustCompile(pattern).FindStringSubmatch(health)
	if command == nil {
		s.t.Fatalf("health does not say %q: %s", pattern, health)
	}
	args := append(strings.Fields(command[1]), command[2], command[3])
	if code, out, said := s.command(args...); code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s%s", args, code, out, said)
	}
}

// The bit that flips is in the header of the batch, which says where the batch lies: the
// watermark must not follow it beyond the log, and the halt names offsets all the same.
func TestDamagedBatchHeader(t *testing.T) {
	t.Parallel()
	k := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newStage(t, stageConfig{Brokers: k.Brokers(), Partitions: 3})
	fields := []struct {
		name string
		at   int
		bit  byte
		to   int64 // the first offset behind what cannot be read
	}{
		{"first offset, not covered by the checksum, by which the broker finds the next batch", 7, 0x10, 5},
		{"last offset", 25, 1, 4},
		{"length, without which the broker does not find the next batch", 9, 1, 5},
	}
	for i, field := range fields {
		at := int32(i)
		id := func(name string) string { return fmt.Sprintf("%s-%d", name, i) }
		s.produce(on(at, created(id("a"))))
		s.asOneBatch(on(at, created(id("b1"))), on(at, created(id("b2"))), on(at, created(id("b3"))))
		s.produce(on(at, created(id("c"))))
		flip(t, k.Segment(s.topic, at), 1, field.at, field.bit)
	}
	p := s.spawn()
	awaitMetric(t, p, func(v float64) bool { return v == 3 }, "orderprojector_partition_halted")
	if marks := s.marks(); marks[0] != 1 || marks[1] != 1 || marks[2] != 1 {
		t.Errorf("watermarks %v", marks)
	}
	_, health := get(p.HTTPAddr(), "/healthz/consumption")
	var problem struct{ Detail string }
	must(t, json.Unmarshal([]byte(health), &problem))
	for i, field := range fields {
		if !strings.Contains(problem.Detail, fmt.Sprintf("%s-%d: offsets 1 to %d cannot be read", s.topic, i, field.to-1)) {
			t.Errorf("%s: health says: %s", field.name, problem.Detail)
		}
		s.skipAsTold(problem.Detail, int32(i), field.to)
	}
	s.awaitDrained()
	awaitStatus(t, p, "/healthz/consumption", 200)
	if got := ask[string](s, `SELECT string_agg(order_id, ' ' ORDER BY order_id COLLATE "C") FROM orders`); got != "a-0 a-1 a-2 c-1" {
		t.Errorf("orders %q", got)
	}
}

// An event comes again with other bytes, and the record it is to be compared with is damaged.
func TestDamagedOlderRecordIsAConflict(t *testing.T) {
	t.Parallel()
	k := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newStage(t, stageConfig{Brokers: k.Brokers()})
	p := s.start()
	s.produce(created("a"))
	s.produce(created("b"))
	s.awaitDrained()
	p.Stop()
	damage(t, k, s.topic, 0, 0)
	p = s.start()
	blank := created("a")
	blank.Value = append(blank.Value, ' ')
	s.produce(blank)
	s.produce(paid("b", 2))
	s.awaitDrained()
	if got := ask[string](s, `SELECT order_id || ' ' || reason || ' ' || detail FROM dead_letters`); !strings.HasPrefix(got, "a conflict ") ||
		!strings.Contains(got, fmt.Sprintf("that record is gone (offsets 0 to 0 of %s-0 cannot be read", s.topic)) {
		t.Errorf("letter: %s", got)
	}
	if got := ask[string](s, `SELECT string_agg(order_id || ':' || version, ' ' ORDER BY order_id) FROM orders`); got != "a:1 b:2" {
		t.Errorf("orders %q", got)
	}
	awaitStatus(t, p, "/healthz/consumption", 200)
}

// A topic of two partitions is made again with one. An event of the second partition comes again, with one
// blank more: the record it is to be compared with is gone.
func TestPartitionThatTheTopicLostIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Forgiving: true})
	p := s.spawn()
	s.produce(created("a"), on(1, created("b")))
	s.awaitDrained()
	s.recreate(1)
	blank := created("b")
	blank.Value = append(blank.Value, ' ')
	s.produce(blank, created("c"))
	s.awaitDrained()
	if got := ask[string](s, `SELECT order_id || ' ' || reason || ' ' || detail FROM dead_letters`); !strings.HasPrefix(got, "b conflict ") ||
		!strings.Contains(got, "partition 1 offset 0 with other bytes, and that record is gone") {
		t.Errorf("letter: %s", got)
	}
	if got := ask[string](s, `SELECT string_agg(order_id || ':' || version, ' ' ORDER BY order_id) FROM orders`); got != "a:1 b:1 c:1" {
		t.Errorf("orders %q", got)
	}
	awaitStatus(t, p, "/healthz/consumption", 200)
}
