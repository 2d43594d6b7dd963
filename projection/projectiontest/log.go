package projectiontest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/orderprojector/orderprojector/projection"
)

// Log is a topic in memory. It implements projection.Log and
// projection.RecordReader, and is safe for concurrent use.
type Log struct {
	topic string
	id    projection.TopicID

	mu         sync.Mutex
	partitions []partitionLog
}

type partitionLog struct {
	start   int64
	next    int64
	records []projection.Record // visible ones, from start on
}

var (
	_ projection.Log          = (*Log)(nil)
	_ projection.RecordReader = (*Log)(nil)
)

// NewLog returns an empty topic.
func NewLog(topic string, id projection.TopicID, partitions int) *Log {
	return &Log{topic: topic, id: id, partitions: make([]partitionLog, partitions)}
}

// Partition names a partition of the log.
func (l *Log) Partition(partition int32) projection.TopicPartition {
	return projection.TopicPartition{Topic: l.topic, TopicID: l.id, Partition: partition}
}

// Append adds a record to a partition and sets its coordinates.
func (l *Log) Append(partition int32, r projection.Record) projection.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[partition]
	r.TopicPartition, r.Offset = l.Partition(partition), p.next
	p.next++
	p.records = append(p.records, r)
	return r
}

// Mark adds what no consumer sees: a transaction marker.
func (l *Log) Mark(partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitions[partition].next++
}

// Truncate removes the records below an offset, as retention does.
func (l *Log) Truncate(partition int32, start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[partition]
	p.start = start
	p.records = slices.DeleteFunc(p.records, func(r projection.Record) bool { return r.Offset < start })
}

// Records returns the visible records of a partition.
func (l *Log) Records(partition int32) []projection.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.partitions[partition].records)
}

// Ranges implements projection.Log.
func (l *Log) Ranges(_ context.Context, topic string) ([]projection.LogRange, error) {
	if topic != l.topic {
		return nil, fmt.Errorf("topic %s does not exist", topic)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var ranges []projection.LogRange
	for i := range l.partitions {
		ranges = append(ranges, projection.LogRange{
			TopicPartition: l.Partition(int32(i)), From: l.partitions[i].start, Until: l.partitions[i].next,
		})
	}
	return ranges, nil
}

// ReadRange implements projection.Log.
func (l *Log) ReadRange(ctx context.Context, r projection.LogRange, fn func(projection.Record) error) error {
	for _, record := range l.Records(r.Partition) {
		if record.Offset < r.From || record.Offset >= r.Until {
			continue
		}
		if err := fn(record); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ReadRecords implements projection.RecordReader.
func (l *Log) ReadRecords(_ context.Context, tp projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	if tp.TopicID != l.id {
		return nil
	}
	for _, record := range l.Records(tp.Partition) {
		if slices.Contains(offsets, record.Offset) {
			found(record)
		}
	}
	return nil
}
