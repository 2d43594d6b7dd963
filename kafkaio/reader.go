package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

const (
	// readTimeout bounds one step of ReadRecords, retries included.
	readTimeout = 15 * time.Second
	// readBytes is how much a fetch for one record asks for: a batch is sent
	// whole even if it is larger, but what follows is not. As long as records
	// that are asked for lie close together, fetches grow up to readManyBytes.
	readBytes     = 32 << 10
	readManyBytes = 1 << 20
	// missingTries is how often a topic must be missing, with growing waits
	// between, before its records count as gone.
	missingTries = 5
)

// RecordReader reads records by their offsets. It is safe for
// concurrent use and opens its connections when it is first used.
type RecordReader struct {
	lazy *lazyClient
	raw  func(*kgo.Client) *rawFetcher
}

// NewRecordReader checks the configuration; it does not connect.
func NewRecordReader(client ClientConfig, logger *slog.Logger) (*RecordReader, error) {
	if _, err := client.Options(logger); err != nil {
		return nil, err
	}
	decompressor := kgo.DefaultDecompressor()
	return &RecordReader{
		lazy: &lazyClient{config: client, logger: logger},
		raw:  func(c *kgo.Client) *rawFetcher { return &rawFetcher{client: c, decompressor: decompressor} },
	}, nil
}

var _ projection.RecordReader = (*RecordReader)(nil)

// Close closes the connections.
func (r *RecordReader) Close() { r.lazy.close() }

// ReadRecords implements projection.RecordReader. A record is gone when its
// offset was removed or never used, belongs to an aborted transaction or a
// transaction marker, or the topic is another one than tp says. The error is one
// of the infrastructure, when a step gets nowhere for 15 s.
func (r *RecordReader) ReadRecords(ctx context.Context, tp projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	client, err := r.lazy.get()
	if err != nil {
		return err
	}
	raw := r.raw(client)
	maxBytes := int32(readBytes)
	for len(offsets) > 0 {
		f, err := fetchAbout(ctx, raw, tp, offsets[0], maxBytes)
		switch {
		case errors.Is(err, errTopicRecreated), errors.Is(err, errTopicMissing):
			return nil
		case errors.Is(err, kerr.OffsetOutOfRange):
			// Whatever else lies outside of the log needs no question of its own.
			b, err := bounds(ctx, kadm.NewClient(client), tp)
			if err != nil {
				return fmt.Errorf("reading records again: %w", err)
			}
			offsets = slices.DeleteFunc(slices.Clone(offsets[1:]), func(o int64) bool { return o < b.start || o >= b.end })
			continue
		case err != nil:
			return fmt.Errorf("reading records again: %w", err)
		}
		told := f.toldAbout(offsets)
		f.pick(tp, offsets[:told], found)
		offsets = offsets[told:]
		if told > 1 {
			maxBytes = min(2*maxBytes, readManyBytes)
		} else {
			maxBytes = readBytes
		}
	}
	return nil
}

// fetchAbout fetches until the answer tells what is at an offset.
func fetchAbout(ctx context.Context, raw *rawFetcher, tp projection.TopicPartition, offset int64, maxBytes int32) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	missing := 0
	for tries := 0; ; tries++ {
		f, err := raw.fetch(ctx, tp, offset, maxBytes)
		switch {
		case err == nil && f.toldAbout([]int64{offset}) == 1:
			return f, nil
		case err == nil:
			err = fmt.Errorf("reading %s at offset %d: the broker sent no whole batch", tp, offset)
			if f.size > 0 {
				maxBytes = min(maxBytes*8, maxDecompressBytes)
			}
		case errors.Is(err, errTopicRecreated), errors.Is(err, kerr.OffsetOutOfRange):
			return f, err
		case errors.Is(err, errTopicMissing):
			if missing++; missing == missingTries {
				return f, err
			}
		}
		if !sleep(ctx, backoff(tries)) {
			return f, err
		}
	}
}

// toldAbout is how many of the offsets, which ascend, an answer covers.
func (f *fetched) toldAbout(offsets []int64) int {
	n, _ := slices.BinarySearch(offsets, f.next)
	if n < len(offsets) && offsets[n] >= f.bounds.end {
		return len(offsets) // beyond the end there is nothing
	}
	return n
}

// pick hands over the records at offsets, both of which ascend.
func (f *fetched) pick(tp projection.TopicPartition, offsets []int64, found func(projection.Record)) {
	for _, rec := range f.records {
		for len(offsets) > 0 && offsets[0] < rec.Offset {
			offsets = offsets[1:]
		}
		if len(offsets) > 0 && offsets[0] == rec.Offset && !rec.Attrs.IsControl() {
			found(toRecord(tp, rec))
		}
	}
}
