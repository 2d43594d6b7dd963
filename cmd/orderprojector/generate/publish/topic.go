package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
)

const topicTimeout = 30 * time.Second

// TopicError says why a topic cannot take generated records.
type TopicError struct {
	Topic   string
	Problem string
	Advice  string
}

func (e *TopicError) Error() string { return fmt.Sprintf("topic %s %s", e.Topic, e.Problem) }

// Hint says what the operator can do.
func (e *TopicError) Hint() string { return e.Advice }

// prepareTopic returns the topic's number of partitions once it is known that
// the topic is there and ours.
func prepareTopic(ctx context.Context, client *kgo.Client, config Config) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	partitions, err := countPartitions(ctx, admin, config.Topic)
	switch {
	case err != nil:
		return 0, err
	case partitions > 0:
		return partitions, refuseForeign(ctx, config)
	case !config.Create:
		return 0, &TopicError{config.Topic, "does not exist", "create it, or add --create-topic"}
	}
	// The topic is the journal: nothing may remove its records by itself.
	keep := map[string]*string{"retention.ms": kadm.StringPtr("-1"), "retention.bytes": kadm.StringPtr("-1")}
	if _, err := admin.CreateTopic(ctx, config.Partitions, -1, keep, config.Topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return 0, fmt.Errorf("creating topic %s: %w", config.Topic, err)
	}
	for {
		if partitions, err = countPartitions(ctx, admin, config.Topic); err != nil || partitions > 0 {
			return partitions, err
		}
		select { // the brokers' metadata follows
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for topic %s: %w", config.Topic, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// countPartitions returns 0 for a topic that does not exist.
func countPartitions(ctx context.Context, admin *kadm.Client, topic string) (int, error) {
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("looking up topic %s: %w", topic, err)
	}
	detail := topics[topic]
	if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return 0, nil
	}
	if detail.Err != nil {
		return 0, fmt.Errorf("looking up topic %s: %w", topic, detail.Err)
	}
	return len(detail.Partitions), nil
}

const (
	// wholeScan is up to how many records a topic is looked through entirely.
	wholeScan = 50_000
	// Of a larger topic, samples of each partition are looked at, the first and
	// the last records among them.
	samples    = 12
	sampleSize = 400
)

// refuseForeign looks for records that no generator made.
func refuseForeign(ctx context.Context, config Config) error {
	reader, err := kafkaio.NewTopicReader(config.Client, config.Logger)
	if err != nil {
		return err
	}
	defer reader.Close()
	ranges, err := reader.Ranges(ctx, config.Topic)
	if err != nil {
		return err
	}
	for _, r := range sampleRanges(ranges) {
		err := reader.ReadRange(ctx, r, func(record projection.Record) error {
			for _, h := range record.Headers {
				if h.Key == generate.HeaderGenerator {
					return nil
				}
			}
			return &TopicError{
				config.Topic,
				fmt.Sprintf("holds records that were not generated, such as partition %d offset %d", record.Partition, record.Offset),
				"generated orders do not belong among real ones: name a topic of their own",
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sampleRanges picks what to look at.
func sampleRanges(ranges []kafkaio.PartitionRange) []kafkaio.PartitionRange {
	var total int64
	for _, r := range ranges {
		total += r.Until - r.From
	}
	if total <= wholeScan {
		return ranges
	}
	var picked []kafkaio.PartitionRange
	for _, r := range ranges {
		size := r.Until - r.From
		if size <= samples*sampleSize {
			picked = append(picked, r)
			continue
		}
		for i := range int64(samples) {
			part := r
			part.From = r.From + (size-sampleSize)*i/(samples-1)
			part.Until = part.From + sampleSize
			picked = append(picked, part)
		}
	}
	return picked
}
