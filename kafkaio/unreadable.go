package kafkaio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderprojector/orderprojector/projection"
)

// The parts of a batch's header that say where the batch lies. The broker keeps
// batches as they were sent, and finds them by these fields.
const (
	batchLengthAt    = 8  // int32: bytes behind this field
	batchMagicAt     = 16 // int8: 2 for batches as they are written since Kafka 0.11
	batchLastDeltaAt = 23 // int32: last offset minus first offset
	batchHeaderBytes = 61
)

// batchHeader is where a batch of a fetch response lies in the log.
type batchHeader struct {
	offset int64 // the first one, as the header says
	begins int64 // the first one
	next   int64 // behind the last one, or projection.NoOffset where the header does not say
	size   int   // in bytes, header included
}

var errBeyondEnd = errors.New("the batch says that its offsets are beyond the end of the log")

// withinHighWatermark leaves out records whose offsets are beyond the end of the log. The
// checksum of a batch does not cover the field that holds its first offset: a bit that flips there
// gives whole records the offsets of others, and a watermark would run ahead of the log.
func withinHighWatermark(records []*kgo.Record, high int64) ([]*kgo.Record, error) {
	if n := len(records); n == 0 || records[n-1].Offset < high {
		return records, nil
	}
	i := slices.IndexFunc(records, func(r *kgo.Record) bool { return r.Offset >= high })
	return records[:i], errBeyondEnd
}

// batchBeyond finds the first batch whose header says that it begins behind the end of the log. The batch
// before says where it begins, or else the offset that was asked for.
func batchBeyond(raw []byte, offset, high int64) *batchHeader {
	begins := offset
	for {
		h := readHeader(raw)
		switch {
		case h == nil:
			return nil
		case h.offset >= high:
			h.begins = begins
			return h
		case h.size > len(raw):
			return nil
		}
		begins, raw = h.next, raw[h.size:]
	}
}

// batchAt finds the batch that holds an offset, or the first one behind it.
func batchAt(raw []byte, offset int64) *batchHeader {
	for {
		h := readHeader(raw)
		if h == nil || h.size > len(raw) {
			return h
		}
		if following := readHeader(raw[h.size:]); following == nil || following.offset > offset {
			return h
		}
		raw = raw[h.size:]
	}
}

func readHeader(raw []byte) *batchHeader {
	if len(raw) <= batchMagicAt {
		return nil
	}
	length := int32(binary.BigEndian.Uint32(raw[batchLengthAt:]))
	if length < 0 {
		return nil
	}
	h := &batchHeader{
		offset: int64(binary.BigEndian.Uint64(raw)), next: projection.NoOffset,
		size: batchLengthAt + 4 + int(length),
	}
	h.begins = h.offset
	if raw[batchMagicAt] == 2 && len(raw) >= batchLastDeltaAt+4 {
		h.next = h.offset + int64(int32(binary.BigEndian.Uint32(raw[batchLastDeltaAt:]))) + 1
	}
	return h
}

// unreadable describes a batch that cannot be read. Its own header may be what is
// damaged, so the batch behind it says where it ends; the end of the stable log where there is none.
func (f *rawFetcher) unreadable(ctx context.Context, tp projection.TopicPartition, offset int64, bad *batchHeader, rp *kmsg.FetchResponseTopicPartition, cause error) error {
	var tooLarge *kgo.ErrDecompressTooLarge
	if errors.As(cause, &tooLarge) {
		cause = fmt.Errorf("the batch at offset %d decompresses to more than %d MiB", tooLarge.Offset, maxDecompressBytes>>20)
	}
	e := &projection.UnreadableError{TopicPartition: tp, First: bad.begins, Next: rp.LastStableOffset, Err: cause}
	if errors.Is(cause, errBeyondEnd) { // by that header the broker finds this batch for later offsets, too
		var err error
		if e.Next, err = f.nextReadable(ctx, tp, offset, rp.LastStableOffset); err != nil {
			return err
		}
		return e
	}
	again, err := f.ask(ctx, tp, offset, int32(min(bad.size+batchHeaderBytes, brokerMaxReadBytes/2)), kgo.ReadCommitted())
	if err != nil {
		return err
	}
	var following *batchHeader
	if first := readHeader(again.RecordBatches); first != nil && first.offset == bad.offset && first.size < len(again.RecordBatches) {
		following = readHeader(again.RecordBatches[first.size:])
	}
	switch {
	case following != nil && following.offset > bad.begins && following.offset < e.Next:
		e.Next = following.offset
	case bad.next > bad.begins && bad.next < e.Next:
		e.Next = bad.next
	}
	return e
}

// unreadableTries is how often a batch must be unreadable before its partition
// halts: the bytes may be damaged on the way, and another broker may lead.
const unreadableTries = 3

// readable reads the batch at the position. The error is an
// *projection.UnreadableError only if every try says that nobody can read the batch.
func (w *worker) readable() error {
	ctx, cancel := context.WithTimeout(w.stopping, callTimeout)
	defer cancel()
	for tries := 1; ; tries++ {
		f, err := w.session.raw.fetch(ctx, w.tp, w.position, readBytes)
		if err == nil && f.next <= w.position {
			return errStopping // neither read nor known to be unreadable
		}
		if _, unreadable := errors.AsType[*projection.UnreadableError](err); !unreadable || tries == unreadableTries {
			return err
		}
		if !sleep(ctx, backoff(tries)) {
			return errStopping
		}
	}
}

// haltAt says what an operator can do about a batch that cannot be read.
func haltAt(e *projection.UnreadableError) *projection.HaltError {
	return &projection.HaltError{
		Reason: fmt.Sprintf("offsets %d to %d cannot be read: %v", e.First, e.Next-1, e.Err),
		Hint: fmt.Sprintf("move the partition's leader to a broker whose copy is whole, and reading goes on by itself; where there is none: "+
			"orderprojector offsets skip --partition %d --to %d --comment \"offsets %d to %d cannot be read\" --execute",
			e.Partition, e.Next, e.First, e.Next-1),
	}
}

// searchBehind halts a position of which the broker sends no record, although the
// log goes on: the broker cannot find its way in the file.
func (s *session) searchBehind(ctx context.Context, w *worker, position, end int64, cause error) {
	switch {
	case cause == nil:
		cause = errors.New("the broker sends no whole batch")
	case !errors.Is(cause, kerr.CorruptMessage) && !errors.Is(cause, kerr.UnknownServerError):
		return // it may pass
	}
	if s.raw.canRead(ctx, w.tp, position) {
		return
	}
	next, err := s.raw.nextReadable(ctx, w.tp, position, end)
	if err == nil {
		w.feed.fail(&projection.UnreadableError{TopicPartition: w.tp, First: position, Next: next, Err: cause})
	}
}

// nextReadable looks for the first offset behind one that cannot be read from which the
// broker sends records of the log, in steps that double and then halve. It is end where there is none.
func (f *rawFetcher) nextReadable(ctx context.Context, tp projection.TopicPartition, bad, end int64) (int64, error) {
	good := end
	for step := int64(1); bad+step < end; step *= 2 {
		if f.canRead(ctx, tp, bad+step) {
			good = bad + step
			break
		}
		bad += step
	}
	for bad+1 < good {
		if middle := bad + (good-bad)/2; f.canRead(ctx, tp, middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, ctx.Err()
}

func (f *rawFetcher) canRead(ctx context.Context, tp projection.TopicPartition, offset int64) bool {
	rp, err := f.ask(ctx, tp, offset, 1, kgo.ReadCommitted()) // one batch: it is sent whole
	if err != nil {
		return false
	}
	fp, next := f.process(tp, offset, rp, kgo.ReadCommitted())
	_, beyond := withinHighWatermark(fp.Records, fp.HighWatermark)
	return fp.Err == nil && beyond == nil && next > offset
}
