package kafkaio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/projection"
)

// A Kafka timestamp is 64 bits of milliseconds. The client keeps nanoseconds in 64 bits, and a timestamp outside of the
// years 1677 to 2262 overflows into another one. So where the client reports a time of no ordinary year, the batch
// is read for its numbers. Numbers below zero and the largest ones overflow into the years about 1970.
// Two numbers that differ by a multiple of 2^58 (9 million years) are one number to the client: when the lower one
// is of an ordinary year, the higher one is not noticed.

// The ordinary years. A timestamp outside of them costs a second look, so they are wider than producers' clocks.
var (
	ordinaryFrom  = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	ordinaryUntil = time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// overflowed reports whether a time, as the client reports it, may be another one. A time of whole milliseconds in an
// ordinary year is one that did not overflow.
func overflowed(t time.Time) bool {
	return t.Nanosecond()%int(time.Millisecond) != 0 || t.Before(ordinaryFrom) || !t.Before(ordinaryUntil)
}

// correctTimes gives records of a fetch the timestamps that the fetched batches hold.
func correctTimes(records []*kgo.Record, batches []byte, decompressor kgo.Decompressor) {
	if !slices.ContainsFunc(records, func(r *kgo.Record) bool { return overflowed(r.Timestamp) }) {
		return
	}
	millis := timesOf(batches, decompressor)
	for _, r := range records {
		if ms, ok := millis[r.Offset]; ok {
			r.Timestamp = time.UnixMilli(ms)
		}
	}
}

// timesOf returns the timestamps in the batches of a fetch by offset. Batches of before Kafka 0.11 are left out.
func timesOf(batches []byte, decompressor kgo.Decompressor) map[int64]int64 {
	const head, magicAt, logAppendTime, codec = 12, 16, 1 << 3, 7
	millis := make(map[int64]int64)
	for len(batches) > magicAt {
		end := head + int(int32(binary.BigEndian.Uint32(batches[8:])))
		if end <= magicAt || end > len(batches) {
			break // the last batch of a fetch may be cut
		}
		raw := batches[:end]
		batches = batches[end:]
		var batch kmsg.RecordBatch
		if raw[magicAt] != 2 || batch.ReadFrom(raw) != nil {
			continue
		}
		records := batch.Records
		if c := kgo.CompressionCodecType(batch.Attributes & codec); c != 0 {
			var err error
			if records, err = decompressor.Decompress(records, c); err != nil {
				continue
			}
		}
		for len(records) > 0 {
			length, n := binary.Varint(records)
			if n <= 0 || length < 1 || length > int64(len(records)-n) {
				break
			}
			record := records[n+1 : n+int(length)] // behind the attributes
			records = records[n+int(length):]
			delta, n := binary.Varint(record)
			if n <= 0 {
				break
			}
			offset, n := binary.Varint(record[n:])
			if n <= 0 {
				break
			}
			at := batch.FirstTimestamp + delta
			if batch.Attributes&logAppendTime != 0 {
				at = batch.MaxTimestamp
			}
			millis[batch.FirstOffset+offset] = at
		}
	}
	return millis
}

// correctTimes reads the records of a batch again, if a timestamp among them may be another one.
func (w *worker) correctTimes(batch []projection.Record) error {
	mayBeWrong := func(r projection.Record) bool { return !r.Control && overflowed(r.Timestamp) }
	if !slices.ContainsFunc(batch, mayBeWrong) {
		return nil
	}
	offsets, at := make([]int64, len(batch)), make(map[int64]*projection.Record, len(batch))
	for i := range batch {
		offsets[i], at[batch[i].Offset] = batch[i].Offset, &batch[i]
	}
	ctx, cancel := context.WithTimeout(w.stopping, readTimeout)
	defer cancel()
	for maxBytes := int32(fetchMaxPartitionBytes); len(offsets) > 0; {
		f, err := w.session.raw.fetch(ctx, w.tp, offsets[0], maxBytes)
		told := 0
		if err == nil {
			if told = f.toldAbout(offsets); told == 0 && (f.size == 0 || maxBytes == maxDecompressBytes) {
				err = errors.New("the broker sent no whole batch")
			}
			maxBytes = min(maxBytes*8, maxDecompressBytes)
		}
		if err != nil { // the partition starts over, and its records are read again
			return fmt.Errorf("reading the exact timestamps of records from offset %d on: %w", offsets[0], err)
		}
		f.pick(w.tp, offsets[:told], func(r projection.Record) { at[r.Offset].Timestamp = r.Timestamp })
		offsets = offsets[told:]
	}
	return nil
}
