package kafkaio

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderprojector/orderprojector/projection"
)

// OffsetsAt returns, by partition, the offset of the first record in the log
// whose Kafka timestamp is at or after a time, or projection.NoOffset where there is none. In
// a log whose timestamps are out of order, records before that one are all older, and some
// behind it may be. Records above the last stable offset count as not there.
func (r *TopicReader) OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	ranges, err := r.Ranges(ctx, topic)
	if err != nil {
		return nil, err
	}
	client, err := r.lazy.get()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Whole milliseconds are all that Kafka knows: a time between two is that of the later one.
	listed, err := kadm.NewClient(client).ListOffsetsAfterMilli(ctx, at.Add(time.Millisecond-time.Nanosecond).UnixMilli(), topic)
	if err != nil {
		return nil, fmt.Errorf("listing offsets of %s by time: %w", topic, err)
	}
	offsets := make(map[int32]int64, len(ranges))
	for _, pr := range ranges {
		o, ok := listed.Lookup(topic, pr.Partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("listing offsets of %s by time: no answer from the partition's leader", pr.TopicPartition)
		case o.Err != nil:
			return nil, fmt.Errorf("listing offsets of %s by time: %w", pr.TopicPartition, o.Err)
		case o.Timestamp < 0 || o.Offset < 0 || o.Offset >= pr.Until: // the client fills in the end of the log
			offsets[pr.Partition] = projection.NoOffset
		default:
			offsets[pr.Partition] = max(o.Offset, pr.From)
		}
	}
	return offsets, nil
}
