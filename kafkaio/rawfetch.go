package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"time"

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

var (
	errLeaderUnknown = errors.New("the partition has no leader")
	// errNoPartition means that the topic's metadata does not name the partition at all.
	errNoPartition = errors.New("the topic has no such partition")
)

// rawFetcher sends single fetch requests. It is safe for concurrent use.
type rawFetcher struct {
	client       *kgo.Client
	decompressor kgo.Decompressor
}

// newRawFetcher takes the client's own decompressor, which bounds what a batch
// may become in memory.
func newRawFetcher(client *kgo.Client) *rawFetcher {
	return &rawFetcher{client: client, decompressor: client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)}
}

// fetch asks the partition's leader for the records from an offset on,
// read committed. Unlike the consuming client it says how far it looked when
// nothing was visible. Errors of the partition are kerr errors; the topic's ID
// is part of the question, so another incarnation of the topic answers
// UNKNOWN_TOPIC_ID (or errTopicRecreated, if the brokers are too old to be asked by ID).
// A batch at the offset that cannot be read is a *projection.UnreadableError.
func (f *rawFetcher) fetch(ctx context.Context, tp projection.TopicPartition, offset int64, maxBytes int32) (fetched, error) {
	rp, err := f.ask(ctx, tp, offset, maxBytes, kgo.ReadCommitted())
	if err != nil {
		return fetched{}, err
	}
	fp, next := f.process(tp, offset, rp, kgo.ReadCommitted())
	bad, cause := batchAt(rp.RecordBatches, next), fp.Err
	if cause == nil {
		if fp.Records, cause = withinHighWatermark(fp.Records, fp.HighWatermark); cause != nil {
			bad = batchBeyond(rp.RecordBatches, offset, fp.HighWatermark)
		}
	}
	switch {
	case cause == nil:
	case bad == nil:
		return fetched{}, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, cause)
	case bad.begins <= offset:
		return fetched{}, f.unreadable(ctx, tp, offset, bad, rp, cause)
	default:
		next = bad.begins // the batches before it are whole
	}
	return fetched{
		records: fp.Records,
		next:    next,
		bounds:  logBounds{start: fp.LogStartOffset, end: fp.LastStableOffset, high: fp.HighWatermark},
		size:    len(rp.RecordBatches),
	}, nil
}

// timestamp returns the Kafka timestamp of the first record at or behind an
// offset, whatever became of its transaction. found is false at the end of the log.
func (f *rawFetcher) timestamp(ctx context.Context, tp projection.TopicPartition, offset int64) (at time.Time, found bool, err error) {
	rp, err := f.ask(ctx, tp, offset, 1, kgo.ReadUncommitted()) // one batch: it is sent whole
	if err != nil {
		return at, false, err
	}
	fp, _ := f.process(tp, offset, rp, kgo.ReadUncommitted())
	if len(fp.Records) == 0 {
		return at, false, fp.Err
	}
	return fp.Records[0].Timestamp, true, nil
}

func (f *rawFetcher) process(tp projection.TopicPartition, offset int64, rp *kmsg.FetchResponseTopicPartition, isolation kgo.IsolationLevel) (kgo.FetchPartition, int64) {
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true,
		Offset:             offset,
		IsolationLevel:     isolation,
		Topic:              tp.Topic,
		Partition:          tp.Partition,
	}, rp, f.decompressor, nil)
	correctTimes(fp.Records, rp.RecordBatches, f.decompressor)
	return fp, next
}

// ask sends one fetch request for one partition to its leader.
func (f *rawFetcher) ask(ctx context.Context, tp projection.TopicPartition, offset int64, maxBytes int32, isolation kgo.IsolationLevel) (*kmsg.FetchResponseTopicPartition, error) {
	leader, id, err := f.leader(ctx, tp)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 100
	req.MinBytes = 1
	req.MaxBytes = maxBytes
	if isolation == kgo.ReadCommitted() {
		req.IsolationLevel = 1
	}
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
		return nil, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, err)
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetching %s at offset %d: the broker did not answer for the partition", tp, offset)
	}
	rp := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetching %s at offset %d: %w", tp, offset, err)
	}
	return rp, nil
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
			switch {
			case p.Partition != tp.Partition:
			case p.Leader < 0:
				return 0, id, fmt.Errorf("%w: %s", errLeaderUnknown, tp)
			default:
				return p.Leader, id, nil
			}
		}
		if len(topic.Partitions) > 0 {
			return 0, id, fmt.Errorf("%w: %s has %d partitions, and %d was asked for", errNoPartition, tp.Topic, len(topic.Partitions), tp.Partition)
		}
	}
	return 0, projection.TopicID{}, fmt.Errorf("%w: %s", errLeaderUnknown, tp)
}
