package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/orderprojector/orderprojector/projection"
)

// readPatience is how long a TopicReader tries the same fetch again.
const readPatience = 30 * time.Second

// TopicReader reads topics without a group and commits nothing. It is safe for
// concurrent use and opens its connections when it is first used.
type TopicReader struct {
	lazy *lazyClient
}

// PartitionRange is a stretch of one partition's log: from From (inclusive) to
// Until (exclusive).
type PartitionRange = projection.LogRange

var _ projection.Log = (*TopicReader)(nil)

// NewTopicReader checks the configuration; it does not connect.
func NewTopicReader(client ClientConfig, logger *slog.Logger) (*TopicReader, error) {
	if _, err := client.Options(logger); err != nil {
		return nil, err
	}
	return &TopicReader{lazy: &lazyClient{config: client, logger: logger}}, nil
}

// Close closes the connections.
func (r *TopicReader) Close() { r.lazy.close() }

// Ranges returns the whole of a topic as it is now: every partition from the
// start of its log to its last stable offset.
func (r *TopicReader) Ranges(ctx context.Context, topic string) ([]PartitionRange, error) {
	client, err := r.lazy.get()
	if err != nil {
		return nil, err
	}
	id, partitions, err := lookupTopic(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	all, err := listBounds(ctx, kadm.NewClient(client), topic)
	if err != nil {
		return nil, err
	}
	ranges := make([]PartitionRange, 0, partitions)
	for partition := range int32(partitions) {
		b, ok := all[partition]
		if !ok {
			return nil, fmt.Errorf("listing offsets of %s-%d: no answer from the partition's leader", topic, partition)
		}
		ranges = append(ranges, PartitionRange{
			TopicPartition: projection.TopicPartition{Topic: topic, TopicID: id, Partition: partition},
			From:           b.start, Until: b.end,
		})
	}
	return ranges, nil
}

// ReadTopic reads a topic from its start to the end it has now, read
// committed, partition by partition, and calls fn for every visible record in
// offset order. An error of fn ends it and is returned.
func (r *TopicReader) ReadTopic(ctx context.Context, topic string, fn func(projection.Record) error) error {
	ranges, err := r.Ranges(ctx, topic)
	if err != nil {
		return err
	}
	for _, pr := range ranges {
		if err := r.ReadRange(ctx, pr, fn); err != nil {
			return err
		}
	}
	return nil
}

// ReadRange reads one stretch and calls fn for every visible record in offset
// order. It ends at Until, or at the end of the stable log if that comes first, whatever the tail holds (transaction
// markers, aborted transactions).
func (r *TopicReader) ReadRange(ctx context.Context, pr PartitionRange, fn func(projection.Record) error) error {
	client, err := r.lazy.get()
	if err != nil {
		return err
	}
	raw := newRawFetcher(client)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// One fetch is under way while fn works on the one before.
	type answer struct {
		fetched
		err error
	}
	answers := make(chan answer)
	go func() {
		defer close(answers)
		for next := pr.From; next < pr.Until; {
			f, err := fetchPatiently(ctx, raw, pr.TopicPartition, next)
			select {
			case answers <- answer{f, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || f.next <= next {
				return
			}
			next = f.next
		}
	}()
	defer func() {
		cancel()
		for range answers { // wait for the goroutine
		}
	}()

	for a := range answers {
		if a.err != nil {
			return a.err
		}
		for _, rec := range a.records {
			if rec.Offset >= pr.Until {
				return nil
			}
			if rec.Attrs.IsControl() {
				continue
			}
			if err := fn(toRecord(pr.TopicPartition, rec)); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// fetchPatiently tries again while the cluster is in motion. An answer that
// got nowhere means that the stable log ends there.
func fetchPatiently(ctx context.Context, raw *rawFetcher, tp projection.TopicPartition, offset int64) (fetched, error) {
	maxBytes := int32(fetchMaxPartitionBytes)
	began := time.Now()
	for tries := 0; ; tries++ {
		f, err := raw.fetch(ctx, tp, offset, maxBytes)
		switch {
		case err == nil && (f.next > offset || offset >= f.bounds.end):
			return f, nil
		case err == nil:
			maxBytes = min(maxBytes*4, maxDecompressBytes)
			err = fmt.Errorf("reading %s at offset %d: the broker sent no whole batch", tp, offset)
		case errors.Is(err, kerr.OffsetOutOfRange):
			return f, fmt.Errorf("%w: reading %s: %w", ErrDataLoss, tp, err)
		case errors.Is(err, errTopicRecreated):
			return f, err
		}
		if time.Since(began) > readPatience || !sleep(ctx, backoff(tries)) {
			return f, err
		}
	}
}
