package kafkaio

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// recordOverhead is what a record costs in memory on top of its bytes,
// roughly: the record itself and its share of slices.
const recordOverhead = 200

// toRecord keeps key and value as they are: null stays nil and empty stays empty.
func toRecord(tp projection.TopicPartition, r *kgo.Record) projection.Record {
	rec := projection.Record{
		TopicPartition: tp,
		Offset:         r.Offset,
		Timestamp:      r.Timestamp,
		LogAppendTime:  r.Attrs.TimestampType() == 1,
		Key:            r.Key,
		Value:          r.Value,
		Control:        r.Attrs.IsControl(),
	}
	if len(r.Headers) > 0 {
		rec.Headers = make([]projection.Header, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = projection.Header{Key: h.Key, Value: h.Value}
		}
	}
	return rec
}

// fetchedBytes is what a record counts against the buffer limits.
func fetchedBytes(r *kgo.Record) int64 {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return int64(n)
}
