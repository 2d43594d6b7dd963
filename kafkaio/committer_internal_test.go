package kafkaio

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/projection"
)

// fakeGroup is the broker's side of commits.
type fakeGroup struct {
	committed map[int32]int64
	fail      error
	refuse    map[int32]error
	calls     int
}

func (g *fakeGroup) commit(_ context.Context, positions map[int32]int64) (map[int32]error, error) {
	g.calls++
	if g.fail != nil {
		return nil, g.fail
	}
	for p, position := range positions {
		if g.refuse[p] == nil {
			g.committed[p] = position
		}
	}
	return g.refuse, nil
}

func TestCommitterRetriesWhatFailed(t *testing.T) {
	ctx := context.Background()
	g := &fakeGroup{committed: map[int32]int64{}}
	c := newCommitter(g.commit)
	a, b := c.own(0), c.own(1)
	if err := c.flush(ctx); err != nil || g.calls != 0 {
		t.Fatalf("a flush before begin: %v, %d calls", err, g.calls)
	}
	c.begin(a, projection.Start{Offset: 0, CommitAbove: projection.NoOffset})
	c.begin(b, projection.Start{Offset: 3, CommitAbove: 5})
	c.move(a, 7)
	c.move(b, 5)
	boom := errors.New("boom")
	g.fail = boom
	if err := c.flush(ctx); !errors.Is(err, boom) {
		t.Fatalf("flush: %v", err)
	}
	g.fail, g.refuse = nil, map[int32]error{0: boom}
	if err := c.flush(ctx); !errors.Is(err, boom) {
		t.Fatalf("flush: %v", err)
	}
	g.refuse = nil
	if err := c.flush(ctx); err != nil {
		t.Fatal(err)
	}
	if want := map[int32]int64{0: 7}; !maps.Equal(g.committed, want) {
		t.Fatalf("committed %v, want %v: position 5 is not above CommitAbove", g.committed, want)
	}
	calls := g.calls
	if err := c.flush(ctx); err != nil || g.calls != calls {
		t.Fatalf("nothing is due, but %d calls were made (%v)", g.calls-calls, err)
	}
	c.move(b, 6)
	if err := c.release(ctx, []*ownership{a, b}, true); err != nil {
		t.Fatal(err)
	}
	c.move(b, 9)
	if err := c.flush(ctx); err != nil {
		t.Fatal(err)
	}
	if want := map[int32]int64{0: 7, 1: 6}; !maps.Equal(g.committed, want) {
		t.Fatalf("committed %v, want %v", g.committed, want)
	}
}

// A partition may be given up, or begin anew, only when the commit that is under
// way has ended: the next owner, or the next assignment, would see it go back.
func TestAPartitionIsNotGivenUpBeforeTheCommitUnderWayHasEnded(t *testing.T) {
	ctx := context.Background()
	for name, end := range map[string]func(*committer, *ownership){
		"released with a commit":    func(c *committer, o *ownership) { _ = c.release(ctx, []*ownership{o}, true) },
		"released without a commit": func(c *committer, o *ownership) { _ = c.release(ctx, []*ownership{o}, false) },
		"rewound":                   func(c *committer, o *ownership) { c.hold(o) },
	} {
		t.Run(name, func(t *testing.T) {
			var c *committer
			var stay *ownership
			var commits atomic.Int64
			ended := make(chan struct{})
			c = newCommitter(func(context.Context, map[int32]int64) (map[int32]error, error) {
				if commits.Add(1) > 1 {
					return nil, nil
				}
				go func() {
					defer close(ended)
					end(c, stay)
				}()
				select {
				case <-ended:
					t.Error("the partition is given up while a commit is under way")
				case <-time.After(100 * time.Millisecond):
				}
				return nil, nil
			})
			stay = c.own(0)
			c.begin(stay, projection.Start{Offset: 0, CommitAbove: projection.NoOffset})
			c.move(stay, 7)
			if err := c.flush(ctx); err != nil {
				t.Fatal(err)
			}
			<-ended
			if stay.committed != 7 {
				t.Errorf("committed %d", stay.committed)
			}
		})
	}
}

// Whatever happens in whatever order, nothing is committed for a stay that is
// over, and one stay's commits never go back.
func TestCommitterNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		var current *ownership
		var highest int64
		var stale []*ownership
		var c *committer
		c = newCommitter(func(_ context.Context, positions map[int32]int64) (map[int32]error, error) {
			position := positions[0]
			switch {
			case current == nil || c.owned[0] != current:
				t.Fatalf("commit of %d without owning the partition", position)
			case position <= highest:
				t.Fatalf("commit of %d after %d", position, highest)
			case position > current.position:
				t.Fatalf("commit of %d ahead of %d", position, current.position)
			}
			if rapid.Bool().Draw(t, "fails") {
				return nil, errors.New("fails")
			}
			highest = position
			return nil, nil
		})
		t.Repeat(map[string]func(*rapid.T){
			"own": func(t *rapid.T) {
				if current != nil {
					stale = append(stale, current)
				}
				current = c.own(0)
				above := rapid.Int64Range(-1, 20).Draw(t, "above")
				highest = above
				c.begin(current, projection.Start{Offset: rapid.Int64Range(0, 20).Draw(t, "start"), CommitAbove: above})
			},
			"move": func(t *rapid.T) {
				if current != nil {
					c.move(current, rapid.Int64Range(0, 40).Draw(t, "position"))
				}
			},
			"late move": func(t *rapid.T) {
				if len(stale) > 0 {
					c.move(stale[len(stale)-1], 1000)
				}
			},
			"hold": func(t *rapid.T) {
				if current != nil {
					c.hold(current)
				}
			},
			"flush": func(t *rapid.T) { _ = c.flush(ctx) },
			"release": func(t *rapid.T) {
				if current != nil {
					_ = c.release(ctx, []*ownership{current}, rapid.Bool().Draw(t, "commit"))
					stale, current = append(stale, current), nil
				}
			},
			"late release": func(t *rapid.T) {
				if len(stale) > 0 {
					_ = c.release(ctx, stale, true)
				}
			},
		})
	})
}
