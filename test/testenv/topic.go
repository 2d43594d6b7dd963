//go:build unix

package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic creates a topic on the shared cluster and returns its name. Configs
// are topic parameters such as "retention.ms=1000". It is deleted at the end
// of the test.
func Topic(t testing.TB, partitions int32, configs ...string) string {
	t.Helper()
	return TopicOn(t, SharedKafka(t), partitions, configs...)
}

// TopicOn is Topic on another cluster.
func TopicOn(t testing.TB, brokers []string, partitions int32, configs ...string) string {
	t.Helper()
	name := Name(t)
	CreateTopic(t, brokers, name, partitions, configs...)
	return name
}

// CreateTopic creates a topic of a given name, such as one that was deleted
// before. It is deleted at the end of the test, if the cluster still answers.
func CreateTopic(t testing.TB, brokers []string, name string, partitions int32, configs ...string) {
	t.Helper()
	parameters := map[string]*string{}
	for _, c := range configs {
		key, value, ok := strings.Cut(c, "=")
		if !ok {
			t.Fatalf("topic parameter %q is not key=value", c)
		}
		parameters[key] = &value
	}
	admin := Admin(t, brokers)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	created, err := admin.CreateTopic(ctx, partitions, 1, parameters, name)
	if err == nil {
		err = created.Err
	}
	if err != nil {
		t.Fatalf("creating topic %s: %v", name, err)
	}
	// The broker learns of its new partitions a moment after the controller.
	Await(t, 15*time.Second, func() (bool, string) {
		topics, err := admin.ListTopics(ctx, name)
		if err != nil {
			return false, fmt.Sprintf("topic %s: %v", name, err)
		}
		led := 0
		for _, p := range topics[name].Partitions {
			if p.Err == nil && p.Leader >= 0 {
				led++
			}
		}
		return led == int(partitions), fmt.Sprintf("topic %s: %d of %d partitions have a leader", name, led, partitions)
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = admin.DeleteTopics(ctx, name) // the test may have deleted it, or ended the broker
	})
}

// Admin returns an administrative client that is closed at the end of the test.
func Admin(t testing.TB, brokers []string) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RetryTimeout(10*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}
