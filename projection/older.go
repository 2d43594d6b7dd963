package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// readOlder reads records again that decisions have to be compared with. Coordinates are sorted by partition, then offset.
func (p *Projector) readOlder(ctx context.Context, into map[coordinate]*Envelope, topic TopicPartition, coordinates []coordinate) error {
	return readOlder(ctx, p.cfg.BatchTimeout, p.cfg.Older, p.cfg.Decoder, into, topic, coordinates)
}

func readOlder(ctx context.Context, timeout time.Duration, older RecordReader, decoder Decoder,
	into map[coordinate]*Envelope, topic TopicPartition, coordinates []coordinate,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for len(coordinates) > 0 {
		topic.Partition = coordinates[0].partition
		var offsets []int64
		for _, c := range coordinates {
			if c.partition == topic.Partition {
				offsets = append(offsets, c.offset)
			}
		}
		err := older.ReadRecords(ctx, topic, offsets, func(rec Record) {
			c := coordinate{rec.Partition, rec.Offset}
			into[c] = nil
			if rec.Value == nil {
				return
			}
			if env, invalid := decode(decoder, &rec); invalid == nil {
				into[c] = &env
			}
		})
		var unreadable *UnreadableError
		switch {
		case errors.As(err, &unreadable):
			behind, _ := slices.BinarySearch(offsets, unreadable.Next)
			offsets = offsets[:max(behind, 1)] // what lies behind is read next
			for _, offset := range offsets {
				if offset >= unreadable.First {
					into[coordinate{topic.Partition, offset}] = &Envelope{Unreadable: unreadable.Error()}
				}
			}
		case err != nil:
			return fmt.Errorf("reading %d records of %s again: %w", len(offsets), topic, err)
		}
		for _, offset := range offsets {
			if c := (coordinate{topic.Partition, offset}); into[c] == nil {
				into[c] = nil // gone, which is known now
			}
		}
		coordinates = coordinates[len(offsets):]
	}
	return nil
}
