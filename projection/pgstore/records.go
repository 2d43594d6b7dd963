package pgstore

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/orderprojector/orderprojector/projection"
)

// records collects the columns of records that are stored whole: those of parked events, letters and held records.
type records struct {
	topics     []string
	topicIDs   []uuid.UUID
	partitions []int32
	offsets    []int64
	times      []time.Time
	millis     []*int64
	timeTypes  []int16
	keys       [][]byte
	values     [][]byte
	headers    []string
}

func (c *records) add(r *projection.Record) {
	at, millis := storedTime(r.Timestamp)
	c.times, c.millis = append(c.times, at), append(c.millis, millis)
	c.topics, c.topicIDs = append(c.topics, r.Topic), append(c.topicIDs, uuid.UUID(r.TopicID))
	c.partitions, c.offsets = append(c.partitions, r.Partition), append(c.offsets, r.Offset)
	timeType := int16(0)
	if r.LogAppendTime {
		timeType = 1
	}
	c.timeTypes = append(c.timeTypes, timeType)
	c.keys, c.values = append(c.keys, r.Key), append(c.values, r.Value)
	c.headers = append(c.headers, headers(r.Headers).json())
}

// recordColumns are the targets of a record's columns, in the order in which every statement selects them.
func recordColumns(r *projection.Record) []any {
	return []any{
		&r.Topic, (*uuid.UUID)(&r.TopicID), &r.Partition, &r.Offset, &r.Timestamp, (*exactMillis)(&r.Timestamp), &r.LogAppendTime,
		&r.Key, &r.Value, (*headers)(&r.Headers),
	}
}

// The first and the last time of a timestamptz.
var (
	firstTime = time.Date(-4713, time.November, 24, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(294276, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// storedTime is how a Kafka timestamp is stored. A timestamptz holds a part of the times that 64 bits of milliseconds
// name. Outside of that part, millis is the number, and at is the nearest time that a timestamptz holds.
func storedTime(t time.Time) (at time.Time, millis *int64) {
	switch {
	case t.Before(firstTime):
		at = firstTime
	case t.After(lastTime):
		at = lastTime
	default:
		return t, nil
	}
	number := t.UnixMilli()
	return at, &number
}

// exactMillis scans the column kafka_timestamp_ms into a time that has been read of kafka_timestamp.
type exactMillis time.Time

// Scan implements sql.Scanner.
func (m *exactMillis) Scan(src any) error {
	switch number := src.(type) {
	case nil:
	case int64:
		*m = exactMillis(time.UnixMilli(number))
	default:
		return fmt.Errorf("kafka_timestamp_ms stored as %T", src)
	}
	return nil
}
