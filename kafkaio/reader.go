package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

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
	// goneAfter is how long a topic must be without a partition before the partition's
	// records count as gone: a broker may not know of new partitions yet.
	goneAfter = 30 * time.Second
	// unreadablePatience is how long a batch that cannot be read is tried again, because another
	// broker may take over. The answer is remembered for unreadableMemory.
	unreadablePatience = 5 * time.Second
	unreadableMemory   = time.Minute
	unreadableLimit    = 1000 // answers that are remembered
)

// RecordReader reads records by their offsets. It is safe for
// concurrent use and opens its connections when it is first used.
type RecordReader struct {
	// TopicIDs returns the IDs under which records of a topic were ever projected. When there is another one
	// than the topic's own, a partition that the topic does not have is known to be gone. May be nil.
	TopicIDs func(ctx context.Context, topic string) ([]projection.TopicID, error)

	lazy      *lazyClient
	logger    *slog.Logger
	goneAfter time.Duration
	patience  time.Duration // for a batch that cannot be read

	mu         sync.Mutex
	missing    map[projection.TopicPartition]time.Time // since when a topic is known to be without a partition
	unreadable []unreadableBatch
}

// unreadableBatch is an answer that is remembered.
type unreadableBatch struct {
	*projection.UnreadableError
	until time.Time
}

// NewRecordReader checks the configuration; it does not connect.
func NewRecordReader(client ClientConfig, logger *slog.Logger) (*RecordReader, error) {
	if _, err := client.Options(logger); err != nil {
		return nil, err
	}
	return &RecordReader{
		lazy: &lazyClient{config: client, logger: logger}, logger: logger,
		goneAfter: goneAfter, patience: unreadablePatience,
		missing: make(map[projection.TopicPartition]time.Time),
	}, nil
}

var _ projection.RecordReader = (*RecordReader)(nil)

// Close closes the connections.
func (r *RecordReader) Close() { r.lazy.close() }

// ReadRecords implements projection.RecordReader. A record is gone when its
// offset was removed or never used, belongs to an aborted transaction or a
// transaction marker, the topic is another one than tp says, or the topic has no such
// partition: for 30 s, or since it was created anew. The error is one
// of the infrastructure, when a step gets nowhere for 15 s; or an
// *projection.UnreadableError, once a batch was tried again for 5 s, or until half of ctx's time is over.
func (r *RecordReader) ReadRecords(ctx context.Context, tp projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	client, err := r.lazy.get()
	if err != nil {
		return err
	}
	raw := newRawFetcher(client)
	maxBytes := int32(readBytes)
	for len(offsets) > 0 {
		f, err := r.fetchAbout(ctx, raw, tp, offsets[0], maxBytes)
		switch {
		case errors.Is(err, errTopicRecreated), errors.Is(err, errTopicMissing):
			return nil
		case errors.Is(err, errNoPartition):
			gone, unknown := r.isGone(ctx, raw, tp)
			if unknown == nil && gone {
				return nil
			}
			return fmt.Errorf("reading records again: %w", errors.Join(err, unknown))
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
		r.found(tp)
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
func (r *RecordReader) fetchAbout(ctx context.Context, raw *rawFetcher, tp projection.TopicPartition, offset int64, maxBytes int32) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if known := r.knownUnreadable(tp, offset); known != nil {
		return fetched{}, known
	}
	deadline, _ := ctx.Deadline()
	patience := min(r.patience, time.Until(deadline)/2)
	began, missing := time.Now(), 0
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
		case errors.Is(err, errTopicRecreated), errors.Is(err, errNoPartition), errors.Is(err, kerr.OffsetOutOfRange):
			return f, err
		case errors.Is(err, errTopicMissing):
			if missing++; missing == missingTries {
				return f, err
			}
		}
		if unreadable, ok := errors.AsType[*projection.UnreadableError](err); ok && time.Since(began) > patience {
			r.remember(unreadable)
			return f, err
		}
		if !sleep(ctx, backoff(tries)) {
			return f, err
		}
	}
}

// isGone reports whether a partition that the topic does not have had records that
// are gone. A broker that has just learnt of new partitions must not be believed at once:
// either the topic was created anew, or it is without the partition for goneAfter.
func (r *RecordReader) isGone(ctx context.Context, raw *rawFetcher, tp projection.TopicPartition) (bool, error) {
	r.mu.Lock()
	since, known := r.missing[tp]
	if !known {
		since = time.Now()
		r.missing[tp] = since
	}
	r.mu.Unlock()
	if known && time.Since(since) >= r.goneAfter {
		return true, nil
	}
	if r.TopicIDs == nil {
		return false, nil
	}
	ids, err := r.TopicIDs(ctx, tp.Topic)
	if err != nil {
		return false, err
	}
	current, _, err := lookupTopic(ctx, raw.client, tp.Topic)
	return err == nil && slices.ContainsFunc(ids, func(id projection.TopicID) bool { return id != current }), err
}

// found notes that a partition exists.
func (r *RecordReader) found(tp projection.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, tp)
}

// remember keeps an answer, so that other records of the batch need not wait for it.
func (r *RecordReader) remember(e *projection.UnreadableError) {
	r.logger.Warn("records that are asked for again cannot be read", "topic", e.Topic, "partition", e.Partition,
		"from", e.First, "to", e.Next, "error", e.Err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unreadable) == unreadableLimit {
		r.unreadable = r.unreadable[1:]
	}
	r.unreadable = append(r.unreadable, unreadableBatch{e, time.Now().Add(unreadableMemory)})
}

func (r *RecordReader) knownUnreadable(tp projection.TopicPartition, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreadable = slices.DeleteFunc(r.unreadable, func(b unreadableBatch) bool { return time.Now().After(b.until) })
	for _, b := range r.unreadable {
		if b.TopicPartition == tp && b.First <= offset && offset < b.Next {
			return b.UnreadableError
		}
	}
	return nil
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
