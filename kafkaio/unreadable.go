package kafkaio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

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
	offset int64 // the first one
	next   int64 // behind the last one, or projection.NoOffset where the header does not say
	size   int   // in bytes, header included
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
	if raw[batchMagicAt] == 2 && len(raw) >= batchLastDeltaAt+4 {
		h.next = h.offset + int64(int32(binary.BigEndian.Uint32(raw[batchLastDeltaAt:]))) + 1
	}
	return h
}

// unreadable describes a batch that cannot be read. Its own header may be what is
// damaged, so the batch behind it says where it ends; the end of the stable log where there is none.
func (f *rawFetcher) unreadable(ctx context.Context, tp projection.TopicPartition, bad *batchHeader, rp *kmsg.FetchResponseTopicPartition, cause error) error {
	var tooLarge *kgo.ErrDecompressTooLarge
	if errors.As(cause, &tooLarge) {
		cause = fmt.Errorf("the batch at offset %d decompresses to more than %d MiB", tooLarge.Offset, maxDecompressBytes>>20)
	}
	e := &projection.UnreadableError{TopicPartition: tp, First: bad.offset, Next: rp.LastStableOffset, Err: cause}
	again, err := f.ask(ctx, tp, bad.offset, int32(min(bad.size+batchHeaderBytes, brokerMaxReadBytes/2)), kgo.ReadCommitted())
	if err != nil {
		return err
	}
	var following *batchHeader
	if first := readHeader(again.RecordBatches); first != nil && first.offset == bad.offset && first.size < len(again.RecordBatches) {
		following = readHeader(again.RecordBatches[first.size:])
	}
	switch {
	case following != nil && following.offset > bad.offset:
		e.Next = following.offset
	case bad.next > bad.offset && bad.next < e.Next:
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
		_, err := w.session.raw.fetch(ctx, w.tp, w.position, readBytes)
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
