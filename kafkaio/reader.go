package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

const (
	// readTimeout bounds one ReadRecord, retries included.
	readTimeout = 15 * time.Second
	// readBytes is how much a single record's fetch asks for at first: a
	// batch is sent whole even if it is larger, but what follows is not.
	readBytes = 32 << 10
	// missingTries is how often a topic must be missing, with growing waits
	// between, before its records count as gone.
	missingTries = 5
)

// RecordReader reads single records by their offset. It is safe for
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

// ReadRecord returns the record at exactly that offset. The error is
// projection.ErrRecordGone when the log no longer holds it: the offset was
// removed or never used, belongs to an aborted transaction or a transaction
// marker, or the topic is another one than tp says. Any other error is one of
// the infrastructure, after retries within 15 s.
func (r *RecordReader) ReadRecord(ctx context.Context, tp projection.TopicPartition, offset int64) (projection.Record, error) {
	client, err := r.lazy.get()
	if err != nil {
		return projection.Record{}, err
	}
	raw := r.raw(client)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	maxBytes := int32(readBytes)
	missing := 0
	for tries := 0; ; tries++ {
		f, err := raw.fetch(ctx, tp, offset, maxBytes)
		if err == nil {
			record, found, gone := pick(f, tp, offset)
			if found || gone != nil {
				return record, gone
			}
			err = fmt.Errorf("reading %s at offset %d: the broker sent no whole batch", tp, offset)
			if f.size > 0 {
				maxBytes = min(maxBytes*8, maxDecompressBytes)
			}
		}
		switch {
		case errors.Is(err, errTopicRecreated), errors.Is(err, kerr.OffsetOutOfRange):
			return projection.Record{}, fmt.Errorf("%w: %w", projection.ErrRecordGone, err)
		case errors.Is(err, errTopicMissing):
			if missing++; missing == missingTries {
				return projection.Record{}, fmt.Errorf("%w: %w", projection.ErrRecordGone, err)
			}
		}
		if !sleep(ctx, backoff(tries)) {
			return projection.Record{}, fmt.Errorf("reading one record again: %w", err)
		}
	}
}

// pick finds the record in an answer. Neither a record nor an error means that
// the answer does not tell.
func pick(f fetched, tp projection.TopicPartition, offset int64) (projection.Record, bool, error) {
	gone := func(why string) (projection.Record, bool, error) {
		return projection.Record{}, false, fmt.Errorf("%w: %s at offset %d %s", projection.ErrRecordGone, tp, offset, why)
	}
	for _, rec := range f.records {
		switch {
		case rec.Offset < offset:
			continue
		case rec.Offset > offset:
			return gone("holds no visible record")
		case rec.Attrs.IsControl():
			return gone("is a transaction marker")
		}
		return toRecord(tp, rec), true, nil
	}
	switch {
	case f.next > offset:
		return gone("holds no visible record")
	case offset >= f.bounds.end:
		return gone("is beyond the end of the log")
	}
	return projection.Record{}, false, nil
}
