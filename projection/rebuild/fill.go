package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/orderprojector/orderprojector/projection"
)

const (
	// maxRewinds bounds how often a partition begins again because the database lost commits of the shadow.
	maxRewinds = 20
	// maxTouched bounds how many orders are remembered that were read since the comparison. To look at them again takes a second or two.
	maxTouched = 200_000
	// readersPerWriter is how many partitions are read at the same time, per writer; a few more than write keep the writers busy.
	readersPerWriter = 2
)

// filler brings the shadow up to offsets of the topic. Its methods are called by one goroutine at a time.
type filler struct {
	cfg        *Config
	projector  *projection.Projector
	partitions map[int32]*partition
	passed     atomic.Int64 // offsets

	mu      sync.Mutex
	touched map[string]struct{} // orders whose records were read since the comparison; nil: not remembered
	decoder projection.Decoder
}

// partition is one partition's place in the shadow.
type partition struct {
	log     projection.LogRange
	handler projection.PartitionHandler
	next    int64
}

// open makes sure that every partition has a watermark in the shadow, and learns how far each is.
func (f *filler) open(ctx context.Context, ranges []projection.LogRange) error {
	f.partitions = make(map[int32]*partition, len(ranges))
	for _, r := range ranges {
		p := &partition{log: r}
		f.partitions[r.Partition] = p
		if err := f.assign(ctx, p); err != nil {
			return err
		}
		if p.next < r.From {
			return &projection.RefusedError{
				Reason: fmt.Sprintf("the tables stand at offset %d of %s, and its log begins at %d by now: they cannot be caught up", p.next, r.TopicPartition, r.From),
				Advice: "use rebuild instead",
			}
		}
	}
	return nil
}

func (f *filler) assign(ctx context.Context, p *partition) error {
	if p.handler != nil {
		p.handler.Close()
	}
	handler, start, err := f.projector.Assign(ctx, projection.Assignment{
		TopicPartition: p.log.TopicPartition, Group: f.cfg.Group, Committed: projection.NoOffset, LogStart: p.log.From, LogEnd: p.log.Until,
	})
	if err != nil {
		return fmt.Errorf("beginning with %s: %w", p.log.TopicPartition, err)
	}
	p.handler, p.next = handler, start.Offset
	return nil
}

// rewind goes back where the shadow, given its watermarks, holds less than it did: the database has lost commits
// of partitions that may have nothing left to read, so that nobody would notice.
func (f *filler) rewind(ctx context.Context, marks map[int32]int64) error {
	for partition, p := range f.partitions {
		if marks[partition] >= p.next {
			continue
		}
		f.cfg.Logger.Warn("reading again: the database has lost commits", "partition", partition, "offset", marks[partition], "position", p.next)
		before := p.next
		if err := f.assign(ctx, p); err != nil {
			return err
		}
		f.passed.Add(p.next - before)
	}
	return nil
}

// close forgets what is remembered of the partitions.
func (f *filler) close() {
	for _, p := range f.partitions {
		if p.handler != nil {
			p.handler.Close()
		}
	}
}

// left is how many offsets are missing to the targets.
func (f *filler) left(targets map[int32]int64) int64 {
	left := int64(0)
	for partition, target := range targets {
		if p := f.partitions[partition]; p != nil {
			left += max(0, target-p.next)
		}
	}
	return left
}

// to brings every partition up to its target, several at a time.
func (f *filler) to(ctx context.Context, targets map[int32]int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readersPerWriter * f.cfg.Writers)
	for _, partition := range slices.Sorted(maps.Keys(targets)) {
		p := f.partitions[partition]
		if p == nil || p.next >= targets[partition] {
			continue
		}
		group.Go(func() error {
			if err := f.partition(ctx, p, targets[partition]); err != nil {
				return fmt.Errorf("reading %s at offset %d: %w", p.log.TopicPartition, p.next, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (f *filler) partition(ctx context.Context, p *partition, target int64) error {
	for rewinds := 0; p.next < target; rewinds++ {
		err := f.stretch(ctx, p, target)
		var rewind *projection.RewindError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &rewind) || rewinds == maxRewinds:
			return err
		}
		f.cfg.Logger.Warn("reading again", "partition", p.log.Partition, "reason", rewind.Reason)
		before := p.next
		if err := f.assign(ctx, p); err != nil {
			return err
		}
		f.passed.Add(p.next - before)
	}
	return nil
}

// stretch reads on to the target. What lies at its end may be visible to nobody, and is passed too.
func (f *filler) stretch(ctx context.Context, p *partition, target int64) error {
	var batch []projection.Record
	size := int64(0)
	flush := func() error {
		if len(batch) == 0 {
			return ctx.Err()
		}
		f.touch(batch)
		if err := p.handler.Handle(ctx, batch); err != nil {
			return err
		}
		f.pass(p, batch[len(batch)-1].Offset+1)
		batch, size = batch[:0], 0
		return nil
	}
	err := f.cfg.Log.ReadRange(ctx, projection.LogRange{TopicPartition: p.log.TopicPartition, From: p.next, Until: target},
		func(rec projection.Record) error {
			batch = append(batch, rec)
			size += int64(len(rec.Value))
			if len(batch) >= f.cfg.BatchRecords || size >= f.cfg.BatchBytes {
				return flush()
			}
			return nil
		})
	if err == nil {
		err = flush()
	}
	if err == nil && p.next < target {
		last := projection.Record{TopicPartition: p.log.TopicPartition, Offset: target - 1, Timestamp: time.Now(), Control: true}
		if err = p.handler.Handle(ctx, []projection.Record{last}); err == nil {
			f.pass(p, target)
		}
	}
	return err
}

func (f *filler) pass(p *partition, next int64) {
	f.passed.Add(next - p.next)
	p.next = next
}

// touch remembers the orders of records, for the comparison to look at them again.
func (f *filler) touch(records []projection.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.touched == nil {
		return
	}
	for i := range records {
		rec := &records[i]
		if rec.Control || rec.Value == nil {
			continue
		}
		f.note(string(rec.Key))
		env, err := f.decoder.Decode(rec)
		var invalid *projection.DecodeError
		switch {
		case err == nil:
			f.note(env.OrderID)
		case errors.As(err, &invalid):
			f.note(invalid.OrderID)
		}
	}
}

func (f *filler) note(orderID string) {
	if orderID != "" && len(f.touched) <= maxTouched && utf8.ValidString(orderID) && !strings.Contains(orderID, "\x00") {
		f.touched[orderID] = struct{}{}
	}
}

// remember begins to remember the orders that are read.
func (f *filler) remember() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touched = map[string]struct{}{}
}

// remembered are the orders that were read since then; whole is false when they are too many.
func (f *filler) remembered() (orders []string, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.touched)), len(f.touched) <= maxTouched
}
