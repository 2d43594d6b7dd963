package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// GroupPosition is where a group stands in a partition, as the brokers see it.
type GroupPosition struct {
	projection.TopicPartition
	LogStart      int64 // first offset that still exists
	LogEnd        int64 // last stable offset
	HighWatermark int64 // end of what is replicated; above LogEnd while a transaction is open
	Committed     int64 // next to read, or projection.NoOffset
	// TransactionSince is the Kafka timestamp of the record at LogEnd while a transaction is open: the first record
	// of the oldest one. It is zero when the record cannot be read.
	TransactionSince time.Time
}

// BehindTransaction counts the offsets from the first record of the oldest open
// transaction to the end of the log.
func (p *GroupPosition) BehindTransaction() int64 { return p.HighWatermark - p.LogEnd }

// GroupPositions asks the brokers where a group stands in a topic, partition by
// partition. Partitions whose leader is away are missing from the answer. It connects
// for this one question, and joins no group.
func GroupPositions(ctx context.Context, config ClientConfig, group, topic string, logger *slog.Logger) ([]GroupPosition, error) {
	opts, err := config.Options(logger)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("creating a kafka client: %w", err)
	}
	defer client.Close()
	id, _, err := lookupTopic(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	logs, err := listBounds(ctx, admin, topic)
	if err != nil {
		return nil, err
	}
	committed, err := admin.FetchOffsetsForTopics(ctx, group, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetching committed offsets of group %s: %w", group, err)
	}
	raw := newRawFetcher(client)
	positions := make([]GroupPosition, 0, len(logs))
	for partition, b := range logs {
		p := GroupPosition{
			TopicPartition: projection.TopicPartition{Topic: topic, TopicID: id, Partition: partition},
			LogStart:       b.start, LogEnd: b.end, HighWatermark: b.high, Committed: projection.NoOffset,
		}
		if p.BehindTransaction() > 0 {
			if at, found, err := raw.timestamp(ctx, p.TopicPartition, p.LogEnd); err == nil && found {
				p.TransactionSince = at
			}
		}
		if o, ok := committed.Lookup(topic, partition); ok && o.Err == nil && o.At >= 0 {
			p.Committed = o.At
		}
		positions = append(positions, p)
	}
	slices.SortFunc(positions, func(a, b GroupPosition) int { return int(a.Partition - b.Partition) })
	return positions, nil
}
