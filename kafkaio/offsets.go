package kafkaio

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/orderprojector/orderprojector/projection"
)

// logBounds is where a partition's log begins and ends.
type logBounds struct {
	start int64 // first offset that still exists
	end   int64 // last stable offset
	high  int64 // high watermark: above end while a transaction is open
}

// listBounds asks for the bounds of every partition of a topic. Partitions
// whose leader is away are missing from the answer.
//
// The high watermark is asked for first. A last stable offset below it then
// means that a transaction was open at the second question, and not that
// records arrived between the two.
func listBounds(ctx context.Context, adm *kadm.Client, topic string) (map[int32]logBounds, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil && !partial(err) {
		return nil, fmt.Errorf("listing start offsets of %s: %w", topic, err)
	}
	highs, err := adm.ListEndOffsets(ctx, topic)
	if err != nil && !partial(err) {
		return nil, fmt.Errorf("listing end offsets of %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil && !partial(err) {
		return nil, fmt.Errorf("listing last stable offsets of %s: %w", topic, err)
	}
	bounds := make(map[int32]logBounds)
	for partition, start := range starts[topic] {
		end, stable := ends.Lookup(topic, partition)
		high, replicated := highs.Lookup(topic, partition)
		if stable && replicated && start.Err == nil && end.Err == nil && high.Err == nil && partition >= 0 {
			bounds[partition] = logBounds{start: start.Offset, end: end.Offset, high: max(end.Offset, high.Offset)}
		}
	}
	return bounds, nil
}

// partial reports whether some brokers answered.
func partial(err error) bool {
	var shards *kadm.ShardErrors
	return errors.As(err, &shards) && !shards.AllFailed
}

// bounds asks for the bounds of one partition.
func bounds(ctx context.Context, adm *kadm.Client, tp projection.TopicPartition) (logBounds, error) {
	all, err := listBounds(ctx, adm, tp.Topic)
	if err != nil {
		return logBounds{}, err
	}
	b, ok := all[tp.Partition]
	if !ok {
		return logBounds{}, fmt.Errorf("listing offsets of %s: no answer from the partition's leader", tp)
	}
	return b, nil
}

// committedOffset asks for the group's committed offset, NoOffset if there is none.
func committedOffset(ctx context.Context, adm *kadm.Client, group string, tp projection.TopicPartition) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	offsets, err := adm.FetchOffsetsForTopics(ctx, group, tp.Topic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return projection.NoOffset, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fetching committed offsets of group %s: %w", group, err)
	}
	o, ok := offsets.Lookup(tp.Topic, tp.Partition)
	switch {
	case ok && o.Err != nil:
		return 0, fmt.Errorf("fetching the committed offset of group %s for %s: %w", group, tp, o.Err)
	case !ok || o.At < 0:
		return projection.NoOffset, nil
	}
	return o.At, nil
}
