package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

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
	HighWatermark int64 // end of what is replicated; above LogEnd while transactions are open. NoOffset when it is not known
	Committed     int64 // next to read, or projection.NoOffset
}

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
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil && !partial(err) {
		return nil, fmt.Errorf("listing end offsets of %s: %w", topic, err)
	}
	committed, err := admin.FetchOffsetsForTopics(ctx, group, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetching committed offsets of group %s: %w", group, err)
	}
	positions := make([]GroupPosition, 0, len(logs))
	for partition, b := range logs {
		p := GroupPosition{
			TopicPartition: projection.TopicPartition{Topic: topic, TopicID: id, Partition: partition},
			LogStart:       b.start, LogEnd: b.end, Committed: projection.NoOffset, HighWatermark: projection.NoOffset,
		}
		if end, ok := ends.Lookup(topic, partition); ok && end.Err == nil {
			p.HighWatermark = end.Offset
		}
		if o, ok := committed.Lookup(topic, partition); ok && o.Err == nil && o.At >= 0 {
			p.Committed = o.At
		}
		positions = append(positions, p)
	}
	slices.SortFunc(positions, func(a, b GroupPosition) int { return int(a.Partition - b.Partition) })
	return positions, nil
}
