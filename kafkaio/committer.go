package kafkaio

import (
	"context"
	"sync"

	"github.com/orderprojector/orderprojector/projection"
)

// commitFunc commits positions of the topic and returns the partitions'
// errors, or one for all.
type commitFunc func(ctx context.Context, positions map[int32]int64) (map[int32]error, error)

// The committer commits the positions of the partitions that are owned at that
// moment. A partition is released under the lock that a commit holds, so a
// worker that finishes late has nothing left to commit with, and a commit
// under way is over before the partition goes to its next owner.
type committer struct {
	commit commitFunc

	committing sync.Mutex // held during a commit; taken before mu

	mu    sync.Mutex
	owned map[int32]*ownership
}

// ownership is one stay of a partition with this member.
type ownership struct {
	partition int32
	position  int64 // next to read; everything below is durable
	above     int64 // only positions above are committed
	committed int64 // what this member committed last
}

func newCommitter(commit commitFunc) *committer {
	return &committer{commit: commit, owned: make(map[int32]*ownership)}
}

// own begins a stay. Nothing is committed before begin.
func (c *committer) own(partition int32) *ownership {
	o := &ownership{
		partition: partition,
		position:  projection.NoOffset, above: projection.NoOffset, committed: projection.NoOffset,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned[partition] = o
	return o
}

// begin sets where the partition starts.
func (c *committer) begin(o *ownership, start projection.Start) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[o.partition] == o {
		o.position, o.above = start.Offset, start.CommitAbove
	}
}

// move sets the position; a stay that is over is ignored.
func (c *committer) move(o *ownership, position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[o.partition] == o {
		o.position = position
	}
}

// hold ends committing until the partition begins anew. It waits for a commit under way.
func (c *committer) hold(o *ownership) {
	c.committing.Lock()
	defer c.committing.Unlock()
	c.move(o, projection.NoOffset)
}

// committedOf returns what was committed last, or what the start said.
func (c *committer) committedOf(o *ownership) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(o.committed, o.above)
}

// flush commits everything that moved forward. Errors leave the positions
// due, for the next flush.
func (c *committer) flush(ctx context.Context) error {
	c.committing.Lock()
	defer c.committing.Unlock()
	c.mu.Lock()
	all := make([]*ownership, 0, len(c.owned))
	for _, o := range c.owned {
		all = append(all, o)
	}
	c.mu.Unlock()
	return c.flushLocked(ctx, all)
}

func (c *committer) flushLocked(ctx context.Context, stays []*ownership) error {
	due := make(map[int32]int64)
	c.mu.Lock()
	for _, o := range stays {
		if c.owned[o.partition] == o && o.position > max(o.above, o.committed) {
			due[o.partition] = o.position
		}
	}
	c.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	failed, err := c.commit(ctx, due)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range stays {
		position, wasDue := due[o.partition]
		if !wasDue {
			continue
		}
		if perr := failed[o.partition]; perr != nil {
			err = perr
			continue
		}
		o.committed = position
	}
	return err
}

// release ends stays. With commit, what is durable is committed first. It
// waits for a commit under way.
func (c *committer) release(ctx context.Context, stays []*ownership, commit bool) error {
	c.committing.Lock()
	defer c.committing.Unlock()
	var err error
	if commit {
		err = c.flushLocked(ctx, stays)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range stays {
		if c.owned[o.partition] == o {
			delete(c.owned, o.partition)
		}
	}
	return err
}
