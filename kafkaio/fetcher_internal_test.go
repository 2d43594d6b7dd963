package kafkaio

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

func newTestFetcher(t *testing.T, doubt func()) *fetcher {
	t.Helper()
	opts, err := ClientConfig{SeedBrokers: []string{"localhost:1"}}.Options(discard())
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFetcher(opts, ConsumerConfig{Topic: "t", MaxBufferedBytes: 8 << 20}.withDefaults(), [16]byte{1}, doubt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	return f
}

// Records of another incarnation of the topic are never delivered.
func TestFetcherKnowsItsTopic(t *testing.T) {
	doubts := 0
	f := newTestFetcher(t, func() { doubts++ })
	fd := newFeed(projection.TopicPartition{Topic: "t", TopicID: [16]byte{1}})
	f.feeds[0] = fd
	deliver := func(id [16]byte) {
		f.distribute(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", TopicID: id, Partitions: []kgo.FetchPartition{{HighWatermark: 10, Records: records(0, 1, 1)}}}}}})
	}
	deliver([16]byte{2})
	if !fd.empty() || doubts != 1 {
		t.Errorf("a record of another topic was delivered (%d doubts)", doubts)
	}
	deliver([16]byte{1})
	deliver([16]byte{}) // an old broker
	if got := len(fd.take(nil, 10, 1<<20)); got != 2 || doubts != 1 {
		t.Errorf("%d records, %d doubts", got, doubts)
	}
}

func TestFetcherAdaptsToCompression(t *testing.T) {
	f := newTestFetcher(t, func() {})
	fetch := func(n int) {
		f.adapt(kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Records: records(0, n, 1000)}}}}})
	}
	fetch(1000)
	if f.fetchBytes != fetchMaxBytes {
		t.Errorf("asks for %d after a fetch that fits", f.fetchBytes)
	}
	for range 20 {
		fetch(20_000)
	}
	if f.fetchBytes != fetchMinBytes {
		t.Errorf("asks for %d after large fetches", f.fetchBytes)
	}
	for range 20 {
		fetch(10)
	}
	if f.fetchBytes != fetchMaxBytes {
		t.Errorf("asks for %d after small fetches", f.fetchBytes)
	}
}
