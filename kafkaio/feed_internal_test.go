package kafkaio

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

func records(first, n int, size int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Offset: int64(first + i), Value: make([]byte, size)}
	}
	return rs
}

func TestFeedTakesWithinLimits(t *testing.T) {
	f := newFeed(projection.TopicPartition{Topic: "t", Partition: 3})
	f.push(records(0, 5, 10))
	f.push(records(5, 5, 10))
	if got := f.take(nil, 7, 1<<20); len(got) != 7 || got[6].Offset != 6 || got[0].Partition != 3 {
		t.Fatalf("took %d records", len(got))
	}
	one := fetchedBytes(records(0, 1, 10)[0])
	if got := f.take(nil, 100, 2*one); len(got) != 2 || got[1].Offset != 8 {
		t.Fatalf("took %d records", len(got))
	}
	if got := f.take(nil, 100, 1); len(got) != 1 || got[0].Offset != 9 {
		t.Fatalf("a record larger than the limit must go through, took %d", len(got))
	}
	if f.bytes != 0 || !f.empty() || f.take(nil, 1, 1) != nil {
		t.Fatalf("%d bytes are left", f.bytes)
	}
}

func TestFeedFailureComesBehindRecords(t *testing.T) {
	f := newFeed(projection.TopicPartition{})
	boom := errors.New("boom")
	f.push(records(0, 2, 1))
	f.fail(boom)
	f.fail(errors.New("later"))
	if err := f.failure(); err != nil {
		t.Fatalf("failure %v before the records", err)
	}
	f.take(nil, 10, 1<<20)
	if err := f.failure(); !errors.Is(err, boom) {
		t.Fatalf("failure() = %v", err)
	}
	<-f.ready
	f.reset()
	if err := f.failure(); err != nil {
		t.Fatalf("failure %v after a seek", err)
	}
}
