package projection

import (
	"context"
	"fmt"
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
		if err != nil {
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
