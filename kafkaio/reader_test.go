package kafkaio_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
)

func TestRecordReader(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.NumBrokers(3), kfake.SeedTopics(2, topic))
	c.Produce(t, topic, 1, kafkatest.Numbered(0, 5)...)
	c.Produce(t, topic, 1, strings.Repeat("x", 500_000), "6")
	c.Begin(t, "tx", topic, 1, "aborted").End(t, kgo.TryAbort) // offset 7, marker 8
	c.Produce(t, topic, 1, "9")
	if err := c.DeleteRecords(topic, 1, 2); err != nil {
		t.Fatal(err)
	}
	reader, err := kafkaio.NewRecordReader(clientConfig(c), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tp := projection.TopicPartition{Topic: topic, TopicID: c.TopicInfo(topic).TopicID, Partition: 1}
	ctx := context.Background()
	errGone := errors.New("gone")
	read := func(offset int64) (value string, err error) {
		err = errGone
		if readErr := reader.ReadRecords(ctx, tp, []int64{offset}, func(rec projection.Record) {
			if rec.TopicPartition != tp || rec.Offset != offset || string(rec.Key) != "key" {
				t.Errorf("offset %d: coordinates %v %d", offset, rec.TopicPartition, rec.Offset)
			}
			value, err = string(rec.Value), nil
		}); readErr != nil {
			return "", readErr
		}
		return value, err
	}
	check := func() {
		for offset, want := range map[int64]string{2: "2", 3: "3", 4: "4", 5: strings.Repeat("x", 500_000), 6: "6", 9: "9"} {
			if got, err := read(offset); err != nil || got != want {
				t.Errorf("offset %d: %d bytes, %v", offset, len(got), err)
			}
		}
		for _, offset := range []int64{0, 1, 7, 8, 10, 1000} {
			if _, err := read(offset); !errors.Is(err, errGone) {
				t.Errorf("offset %d: %v", offset, err)
			}
		}
		// All at once, and more than is there.
		var got []int64
		if err := reader.ReadRecords(ctx, tp, []int64{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 1000}, func(rec projection.Record) {
			got = append(got, rec.Offset)
		}); err != nil || !slices.Equal(got, []int64{2, 4, 5, 6, 9}) {
			t.Errorf("found offsets %v: %v", got, err)
		}
	}
	check()
	if err := c.MoveTopicPartition(topic, 1, (c.LeaderFor(topic, 1)+1)%3); err != nil {
		t.Fatal(err)
	}
	check()

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := read(3); err != nil || got != "3" {
				t.Errorf("offset 3: %q, %v", got, err)
			}
		})
	}
	wg.Wait()

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := reader.ReadRecords(ended, tp, []int64{3}, func(projection.Record) { t.Error("found a record") }); err == nil {
		t.Errorf("with an ended context: %v", err)
	}

	if err := c.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(topic, 2, nil); err != nil {
		t.Fatal(err)
	}
	c.Client.PurgeTopicsFromClient(topic)
	c.Produce(t, topic, 1, kafkatest.Numbered(100, 5)...)
	if got, err := read(3); !errors.Is(err, errGone) {
		t.Errorf("a record of the new topic was taken for the old one's: %q, %v", got, err)
	}
}

// A topic of two partitions is made again with one. The second partition's
// records are gone, and not waiting for a leader.
func TestRecordsOfAPartitionThatTheTopicLost(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(1, topic))
	tp := projection.TopicPartition{Topic: topic, TopicID: c.TopicInfo(topic).TopicID, Partition: 1}
	var ids []projection.TopicID
	var asking error
	newReader := func() *kafkaio.RecordReader {
		reader, err := kafkaio.NewRecordReader(clientConfig(c), testLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(reader.Close)
		reader.TopicIDs = func(context.Context, string) ([]projection.TopicID, error) { return ids, asking }
		return reader
	}
	read := func(reader *kafkaio.RecordReader) error {
		return reader.ReadRecords(t.Context(), tp, []int64{3}, func(projection.Record) { t.Error("found a record") })
	}

	ids = []projection.TopicID{tp.TopicID} // the topic was never made anew: partitions may have been added
	reader := newReader()
	for range 2 {
		if err := read(reader); err == nil {
			t.Error("one look is believed")
		}
	}
	reader.Impatient(0)
	if err := read(reader); err != nil {
		t.Errorf("two looks apart: %v", err)
	}
	reader = newReader()
	if err := read(reader); err == nil {
		t.Error("one look is believed")
	}
	ids = append(ids, projection.TopicID{1}) // an earlier log of the same name
	if err := read(reader); err != nil {
		t.Errorf("the topic was made anew: %v", err)
	}
	asking = errors.New("the database is away")
	if err := read(newReader()); !errors.Is(err, asking) {
		t.Errorf("not knowing what was before: %v", err)
	}
}

func TestTopicReader(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.NumBrokers(2), kfake.SeedTopics(3, topic))
	c.Produce(t, topic, 0, kafkatest.Numbered(0, 100)...)
	c.Begin(t, "tx1", topic, 1, "a", "b").End(t, kgo.TryCommit)
	c.Begin(t, "tx2", topic, 1, "x").End(t, kgo.TryAbort)
	aborted := c.Begin(t, "tx3", topic, 1, "y")
	open := c.Begin(t, "tx4", topic, 1, "z")
	aborted.End(t, kgo.TryAbort) // the tail of the stable log is invisible, and its marker is beyond
	reader, err := kafkaio.NewTopicReader(clientConfig(c), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx := context.Background()
	got := make(map[int32][]string)
	collect := func(r projection.Record) error {
		got[r.Partition] = append(got[r.Partition], string(r.Value))
		return nil
	}
	if err := reader.ReadTopic(ctx, topic, collect); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got[0], kafkatest.Numbered(0, 100)) || !slices.Equal(got[1], []string{"a", "b"}) || len(got[2]) != 0 {
		t.Errorf("read %v", got)
	}
	open.End(t, kgo.TryCommit)

	if err := c.DeleteRecords(topic, 0, 10); err != nil {
		t.Fatal(err)
	}
	ranges, err := reader.Ranges(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if ranges[0].From != 10 || ranges[0].Until != 100 || ranges[1].Until != 9 {
		t.Errorf("ranges from %d until %d, and until %d", ranges[0].From, ranges[0].Until, ranges[1].Until)
	}
	ranges[0].From, ranges[0].Until = 20, 25
	clear(got)
	if err := reader.ReadRange(ctx, ranges[0], collect); err != nil || !slices.Equal(got[0], kafkatest.Numbered(20, 5)) {
		t.Errorf("range: %v, %v", got[0], err)
	}
	ranges[0].From = 5
	if err := reader.ReadRange(ctx, ranges[0], collect); !errors.Is(err, kafkaio.ErrDataLoss) {
		t.Errorf("a range below the log's start: %v", err)
	}
	stop := errors.New("enough")
	if err := reader.ReadTopic(ctx, topic, func(projection.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("fn's error: %v", err)
	}
}

// The same keys as Java's producer puts there (murmur2 over 3 and 12 partitions).
func TestProducerPartitionsLikeJava(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kfake.SeedTopics(12, topic))
	p, err := kafkaio.NewProducer(clientConfig(c), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var mu sync.Mutex
	got := make(map[string]int32)
	for i := range 20 {
		key := fmt.Sprintf("o-%d", 1000+i)
		p.Produce(context.Background(), kafkaio.Message{Topic: topic, Key: []byte(key), Value: []byte("v")}, func(partition int32, _ int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			got[key] = partition
		})
	}
	if err := p.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for key, partition := range got {
		if want := javaPartition([]byte(key), 12); partition != want {
			t.Errorf("%s went to %d, Java's producer takes %d", key, partition, want)
		}
	}
	if len(got) != 20 {
		t.Errorf("%d acknowledged", len(got))
	}
}

// javaPartition is toPositive(murmur2(key)) % partitions, written out from Kafka's definition.
func javaPartition(key []byte, partitions int32) int32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(key))
	i := 0
	for ; len(key)-i >= 4; i += 4 {
		k := uint32(key[i]) | uint32(key[i+1])<<8 | uint32(key[i+2])<<16 | uint32(key[i+3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
	}
	switch len(key) - i {
	case 3:
		h ^= uint32(key[i+2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[i+1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[i])) * m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h&0x7fffffff) % partitions
}
