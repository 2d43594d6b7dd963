package kafkaio

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFetcherAdaptsToCompression(t *testing.T) {
	opts, err := ClientConfig{SeedBrokers: []string{"localhost:1"}}.Options(discard())
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFetcher(opts, ConsumerConfig{Topic: "t", MaxBufferedBytes: 8 << 20}.withDefaults(), [16]byte{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer f.client.Close()
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
