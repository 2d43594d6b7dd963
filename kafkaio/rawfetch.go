package kafkaio

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/projection"
)

// fetched is the answer to one fetch request.
type fetched struct {
	records []*kgo.Record // visible ones and control records
	next    int64         // offset behind everything that was looked at, visible or not
	bounds  logBounds
	size    int // bytes on the wire
}

var errLeaderUnknown = errors.New("the partition has no leader")

// rawFetcher sends single fetch requests. It is safe for concurrent use.
type rawFetcher struct {
	client       *kgo.Client
	decompressor kgo.Decompressor
}

func newRawFetcher(client *kgo.Client) *rawFetcher {
	return &rawFetcher{client: client, decompressor: kgo.DefaultDecompressor()}
}

// fetch asks the partition's leader for the records from an offset on,
// read committed. Unlike the consuming client it says how far it looked when
// nothing was visible. Errors of the partition are kerr errors; the topic's ID
// is part of the question, so another incarnation of the topic answers
// UNKNOWN_TOPIC_ID (or errTopicRecreated, if the brokers are too old to be asked by ID).
func (f *rawFetcher) fetch(ctx context.Context, tp projection.TopicPartition, offset int64, maxBytes int32) (fetched, error) {
	leader, id, err := f.leader(ctx, tp)
	if err != nil {
		return fetched{}, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 100
	req.MinBytes = 1
	req.MaxBytes = maxBytes
	req.IsolationLevel = 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = tp.Topic, id
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition = tp.Partition
	partition.FetchOffset = offset
	partition.PartitionMaxBytes = maxBytes
	partition.CurrentLeaderEpoch = -1
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)

	kresp, err := f.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return fetched{}, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, err)
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fetched{}, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fetched{}, fmt.Errorf("fetching %s at offset %d: the broker did not answer for the partition", tp, offset)
	}
	rp := &resp.Topics[0].Partitions[0]
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true,
		Offset:             offset,
		IsolationLevel:     kgo.ReadCommitted(),
		Topic:              tp.Topic,
		Partition:          tp.Partition,
	}, rp, f.decompressor, nil)
	if fp.Err != nil {
		return fetched{}, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, fp.Err)
	}
	correctTimes(fp.Records, rp.RecordBatches, f.decompressor)
	return fetched{
		records: fp.Records,
		next:    next,
		bounds:  logBounds{fp.LogStartOffset, fp.LastStableOffset},
		size:    len(rp.RecordBatches),
	}, nil
}

// leader looks up the partition's leader and the topic's identity, which must
// be the given one unless that is zero. The client caches the answer for a moment.
func (f *rawFetcher) leader(ctx context.Context, tp projection.TopicPartition) (int32, projection.TopicID, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(tp.Topic)
	req.Topics = append(req.Topics, t)
	resp, err := f.client.RequestCachedMetadata(ctx, req, 0)
	if err != nil {
		return 0, projection.TopicID{}, fmt.Errorf("looking up the leader of %s: %w", tp, err)
	}
	for _, topic := range resp.Topics {
		if topic.Topic == nil || *topic.Topic != tp.Topic {
			continue
		}
		id := projection.TopicID(topic.TopicID)
		switch err := kerr.ErrorForCode(topic.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return 0, id, fmt.Errorf("%w: %s", errTopicMissing, tp.Topic)
		case err != nil:
			return 0, id, fmt.Errorf("looking up the leader of %s: %w", tp, err)
		case tp.TopicID != projection.TopicID{} && id != tp.TopicID:
			return 0, id, fmt.Errorf("%w: %s was %s and is %s", errTopicRecreated, tp.Topic, tp.TopicID, id)
		}
		for _, p := range topic.Partitions {
			if p.Partition == tp.Partition && p.Leader >= 0 {
				return p.Leader, id, nil
			}
		}
	}
	return 0, projection.TopicID{}, fmt.Errorf("%w: %s", errLeaderUnknown, tp)
}
