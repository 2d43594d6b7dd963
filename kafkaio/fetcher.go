package kafkaio

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchWait is how long a broker holds a fetch that finds nothing. A partition
// that resumes beside idle ones joins the next fetch, so this is also the
// longest that resuming takes.
const fetchWait = 250 * time.Millisecond

// fetchMinBytes is the least that a fetch asks for.
const fetchMinBytes = 32 << 10

// The fetcher reads the partitions it is told to, from the offsets it is told
// to. Its client is no group member, so that pausing, seeking and waiting for
// the database have no effect on the membership.
//
// start, seek and stop run inside the poll loop. That is what makes a seek
// clean: no poll is under way while it happens, so no record that was fetched
// before it can arrive after it.
type fetcher struct {
	client  *kgo.Client
	topic   string
	topicID [16]byte
	doubt   func() // asks for a look at the topic's identity

	maxPartitionBytes, maxBufferedBytes int64
	fetchBytes                          int32 // what a fetch asks for now; used by the poll loop alone

	appetite chan struct{} // capacity 1: a feed has room again
	done     chan struct{}

	mu       sync.Mutex
	feeds    map[int32]*feed
	commands []func()
	wake     context.CancelFunc
}

func newFetcher(opts []kgo.Opt, cfg ConsumerConfig, topicID [16]byte, doubt func()) (*fetcher, error) {
	client, err := kgo.NewClient(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(fetchWait),
	)...)
	if err != nil {
		return nil, fmt.Errorf("creating the kafka fetch client: %w", err)
	}
	return &fetcher{
		client:            client,
		topic:             cfg.Topic,
		topicID:           topicID,
		doubt:             doubt,
		maxPartitionBytes: cfg.MaxPartitionBytes,
		maxBufferedBytes:  cfg.MaxBufferedBytes,
		fetchBytes:        fetchMaxBytes,
		appetite:          make(chan struct{}, 1),
		done:              make(chan struct{}),
		feeds:             make(map[int32]*feed),
	}, nil
}

// run polls until ctx ends or the client closes.
func (f *fetcher) run(ctx context.Context) error {
	defer close(f.done)
	for {
		pollCtx, cancel := context.WithCancel(ctx)
		f.runCommands(cancel)
		if ctx.Err() != nil {
			cancel()
			return nil
		}
		if !f.hungry() {
			select {
			case <-f.appetite:
			case <-pollCtx.Done():
			}
			cancel()
			continue
		}
		fetches := f.client.PollFetches(pollCtx)
		cancel()
		if fetches.IsClientClosed() {
			return errClientClosed
		}
		f.distribute(fetches)
	}
}

// runCommands publishes how to end the next poll before it looks for
// commands: a command that comes later finds the poll that it must end.
func (f *fetcher) runCommands(wake context.CancelFunc) {
	f.mu.Lock()
	f.wake = wake
	commands := f.commands
	f.commands = nil
	f.mu.Unlock()
	for _, command := range commands {
		command()
	}
}

// do runs fn inside the poll loop and waits for it, unless the loop has ended.
func (f *fetcher) do(fn func()) {
	finished := make(chan struct{})
	f.mu.Lock()
	f.commands = append(f.commands, func() { fn(); close(finished) })
	if f.wake != nil {
		f.wake()
	}
	f.mu.Unlock()
	select {
	case <-finished:
	case <-f.done:
	}
}

// start begins to fetch a partition that is not fetched, at an offset.
func (f *fetcher) start(fd *feed, offset int64) {
	f.do(func() {
		f.mu.Lock()
		f.feeds[fd.tp.Partition] = fd
		f.mu.Unlock()
		fd.reset()
		f.add(fd.tp.Partition, offset)
	})
}

// seek drops what was fetched and goes on at another offset. It also makes a
// partition fetch again after a failure.
func (f *fetcher) seek(fd *feed, offset int64) {
	f.do(func() {
		if !f.owns(fd) {
			return
		}
		f.remove(fd.tp.Partition)
		fd.reset()
		f.add(fd.tp.Partition, offset)
	})
}

// stop ends fetching. A feed that was replaced meanwhile is left alone.
func (f *fetcher) stop(fd *feed) {
	f.do(func() {
		if !f.owns(fd) {
			return
		}
		f.mu.Lock()
		delete(f.feeds, fd.tp.Partition)
		f.mu.Unlock()
		f.remove(fd.tp.Partition)
		fd.reset()
	})
}

func (f *fetcher) owns(fd *feed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feeds[fd.tp.Partition] == fd
}

func (f *fetcher) add(partition int32, offset int64) {
	f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{
		f.topic: {partition: kgo.NoResetOffset().At(offset)},
	})
}

// remove makes the client forget the partition, its buffered records and its
// place. Adding it again is how to seek: kgo's SetOffsets skips a partition
// whose first metadata has not arrived.
func (f *fetcher) remove(partition int32) {
	f.client.RemoveConsumePartitions(map[string][]int32{f.topic: {partition}})
	f.client.ResumeFetchPartitions(map[string][]int32{f.topic: {partition}})
}

func (f *fetcher) distribute(fetches kgo.Fetches) {
	recreated := false
	for _, fetch := range fetches {
		f.adapt(fetch)
		for _, t := range fetch.Topics {
			if t.Topic != f.topic {
				continue // a poll that ended: an error without a topic
			}
			if t.TopicID != [16]byte{} && t.TopicID != f.topicID {
				recreated = true
				continue
			}
			for _, p := range t.Partitions {
				recreated = f.deliver(p) || recreated
			}
		}
	}
	f.pauseFull()
	if recreated {
		f.doubt()
	}
}

// adapt keeps what one fetch becomes in memory below a quarter of the buffer:
// what a broker sends is compressed, and some topics compress fifty-fold.
func (f *fetcher) adapt(fetch kgo.Fetch) {
	var bytes int64
	for _, t := range fetch.Topics {
		for _, p := range t.Partitions {
			for _, r := range p.Records {
				bytes += fetchedBytes(r)
			}
		}
	}
	limit, next := f.maxBufferedBytes/4, f.fetchBytes
	switch {
	case bytes > limit:
		next = max(fetchMinBytes, int32(int64(next)*limit/bytes))
	case bytes < limit/4:
		next = min(fetchMaxBytes, next*2)
	}
	if next != f.fetchBytes {
		f.fetchBytes = next
		f.client.UpdateFetchMaxBytes(next, max(fetchMinBytes, next/4))
	}
}

// deliver hands what was fetched to the partition's feed. It reports whether
// the broker no longer knows the topic by its ID.
func (f *fetcher) deliver(p kgo.FetchPartition) (unknownTopicID bool) {
	f.mu.Lock()
	fd := f.feeds[p.Partition]
	f.mu.Unlock()
	if fd == nil {
		return false
	}
	records, beyond := withinHighWatermark(p.Records, p.HighWatermark)
	fd.push(records)
	if err := errors.Join(p.Err, beyond); err != nil {
		f.pause(fd)
		fd.fail(err)
	}
	return errors.Is(p.Err, kerr.UnknownTopicID)
}

// A failing partition is paused at once: the client would ask again without a
// pause, hundreds of thousands of times a minute.
func (f *fetcher) pause(fd *feed) {
	fd.mu.Lock()
	fd.paused = true
	fd.mu.Unlock()
	f.client.PauseFetchPartitions(map[string][]int32{f.topic: {fd.tp.Partition}})
}

// pauseFull pauses the partitions whose buffers are full, but only while
// others have room. If all are full the loop simply does not poll, which costs
// no refetching.
func (f *fetcher) pauseFull() {
	f.mu.Lock()
	defer f.mu.Unlock()
	limit := f.limitLocked()
	var full []*feed
	room := false
	for _, fd := range f.feeds {
		fd.mu.Lock()
		switch {
		case fd.paused:
		case fd.bytes >= limit:
			full = append(full, fd)
		default:
			room = true
		}
		fd.mu.Unlock()
	}
	if !room {
		return
	}
	for _, fd := range full {
		fd.mu.Lock()
		// The worker may have emptied it meanwhile, and would not look again.
		if fd.bytes >= limit {
			fd.paused = true
			f.client.PauseFetchPartitions(map[string][]int32{f.topic: {fd.tp.Partition}})
		}
		fd.mu.Unlock()
	}
}

// limitLocked is the share of one partition.
func (f *fetcher) limitLocked() int64 {
	return max(1, min(f.maxPartitionBytes, f.maxBufferedBytes/int64(max(1, len(f.feeds)))))
}

func (f *fetcher) hungry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limit := f.limitLocked()
	for _, fd := range f.feeds {
		fd.mu.Lock()
		hungry := !fd.paused && fd.bytes < limit
		fd.mu.Unlock()
		if hungry {
			return true
		}
	}
	return false
}

// taken is called by a worker after it took records.
func (f *fetcher) taken(fd *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd.mu.Lock()
	defer fd.mu.Unlock()
	if fd.failed != nil || fd.bytes > f.limitLocked()/2 {
		return
	}
	if fd.paused && f.feeds[fd.tp.Partition] == fd {
		fd.paused = false
		f.client.ResumeFetchPartitions(map[string][]int32{f.topic: {fd.tp.Partition}})
	}
	select {
	case f.appetite <- struct{}{}:
	default:
	}
}
