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
	path := k.Segment(topic, partition)
	log, err := os.ReadFile(path)
	must(t, err)
	at := 0
	for range batch {
		at += 12 + int(binary.BigEndian.Uint32(log[at+8:]))
	}
	log[at+61+20] ^= 0x10 // behind the header
	must(t, os.WriteFile(path, log, 0o600))
	must(t, k.Start(ctx))
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

	// The command, word by word as health says.
	command := regexp.MustCompile(`orderprojector (offsets skip --partition 0 --to 4 --comment) "([^"]+)" (--execute)`).FindStringSubmatch(problem.Detail)
	if command == nil {
		t.Fatalf("health names no command: %s", problem.Detail)
	}
	args := append(strings.Fields(command[1]), command[2], command[3])
	if code, out, said := s.command(args...); code != 0 {
		t.Fatalf("%v: exit code %d\n%s%s", args, code, out, said)
	}
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
