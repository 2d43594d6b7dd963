// Package kafkatest runs an in-process Kafka for tests and helps to fill it
// and to look at it.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a fake Kafka cluster with a client for the test's own use.
type Cluster struct {
	*kfake.Cluster
	Seeds  []string
	Client *kgo.Client
	Admin  *kadm.Client
}

// Start starts a cluster that ends with the test. By default it has one broker
// and no topic, and lets groups use short session timeouts.
func Start(tb testing.TB, opts ...kfake.Opt) *Cluster {
	tb.Helper()
	base := []kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}
	cluster, err := kfake.NewCluster(append(base, opts...)...)
	if err != nil {
		tb.Fatalf("starting the fake cluster: %v", err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(10*time.Millisecond),
		kgo.UnknownTopicRetries(20),
	)
	if err != nil {
		tb.Fatalf("creating a client: %v", err)
	}
	tb.Cleanup(func() {
		client.Close()
		cluster.Close()
	})
	return &Cluster{Cluster: cluster, Seeds: cluster.ListenAddrs(), Client: client, Admin: kadm.NewClient(client)}
}

// Produce writes values to a partition, one record and one batch each, and returns the offset of the last.
func (c *Cluster) Produce(tb testing.TB, topic string, partition int32, values ...string) int64 {
	tb.Helper()
	var last int64
	for _, value := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("key"), Value: []byte(value)}
		if err := c.Client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			tb.Fatalf("producing to %s-%d: %v", topic, partition, err)
		}
		last = r.Offset
	}
	return last
}

// AddPartitions raises a topic's partition count and waits until Produce can use them.
func (c *Cluster) AddPartitions(tb testing.TB, topic string, total int) {
	tb.Helper()
	if _, err := c.Admin.UpdatePartitions(context.Background(), total, topic); err != nil {
		tb.Fatalf("adding partitions: %v", err)
	}
	for range 500 {
		c.Client.ForceMetadataRefresh()
		if leader, _, _ := c.Client.PartitionLeader(topic, int32(total-1)); leader >= 0 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	tb.Fatal("the new partitions do not appear")
}

// Numbered returns n values from first on: "0", "1", …
func Numbered(first, n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(first + i)
	}
	return values
}

// Transaction is an open transaction of its own producer.
type Transaction struct {
	client *kgo.Client
}

// Begin opens a transaction and writes values to a partition in it.
func (c *Cluster) Begin(tb testing.TB, id, topic string, partition int32, values ...string) *Transaction {
	tb.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.Seeds...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(id),
	)
	if err != nil {
		tb.Fatalf("creating a client: %v", err)
	}
	tb.Cleanup(client.Close)
	if err := client.BeginTransaction(); err != nil {
		tb.Fatalf("beginning a transaction: %v", err)
	}
	for _, value := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("key"), Value: []byte(value)}
		if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			tb.Fatalf("producing in a transaction: %v", err)
		}
	}
	return &Transaction{client}
}

// End commits or aborts.
func (t *Transaction) End(tb testing.TB, how kgo.TransactionEndTry) {
	tb.Helper()
	if err := t.client.EndTransaction(context.Background(), how); err != nil {
		tb.Fatalf("ending a transaction: %v", err)
	}
}

// Committed returns a group's committed offset, -1 if there is none.
func (c *Cluster) Committed(tb testing.TB, group, topic string, partition int32) int64 {
	tb.Helper()
	offsets, err := c.Admin.FetchOffsets(context.Background(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	if err != nil {
		tb.Fatalf("fetching offsets: %v", err)
	}
	if o, ok := offsets.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

// SetCommitted sets a group's committed offset, as Kafka's tools do.
func (c *Cluster) SetCommitted(tb testing.TB, group, topic string, partition int32, offset int64) {
	tb.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, partition, offset, -1)
	if err := c.Admin.CommitAllOffsets(context.Background(), group, offsets); err != nil {
		tb.Fatalf("setting offsets: %v", err)
	}
}

// Members returns how many members a group has.
func (c *Cluster) Members(tb testing.TB, group string) int {
	tb.Helper()
	groups, err := c.Admin.DescribeGroups(context.Background(), group)
	if err != nil {
		tb.Fatalf("describing the group: %v", err)
	}
	return len(groups[group].Members)
}
