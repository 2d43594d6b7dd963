//go:build unix

package testenv

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// OffsetSampler watches a consumer group's committed offsets of one topic and
// fails the test when one of them ever goes back. The methods may be called
// from several goroutines.
type OffsetSampler struct {
	t            testing.TB
	admin        *kadm.Client
	group, topic string

	mu      sync.Mutex
	latest  map[int32]int64
	epoch   int // raised by Forget and During
	blind   int // calls of During under way
	samples int
}

// StartOffsetSampler samples every 100 ms until the end of the test. While the
// cluster does not answer there is nothing to sample.
func StartOffsetSampler(t testing.TB, brokers []string, group, topic string) *OffsetSampler {
	t.Helper()
	s := &OffsetSampler{t: t, admin: Admin(t, brokers), group: group, topic: topic, latest: map[int32]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			s.Sample(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// Sample takes one sample now.
func (s *OffsetSampler) Sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	offsets, err := s.admin.FetchOffsets(ctx, s.group)
	if err != nil {
		return
	}
	now := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == s.topic && o.Err == nil && o.At >= 0 {
			now[o.Partition] = o.At
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch || s.blind > 0 {
		return // taken before Forget, or while it was called
	}
	s.samples++
	for partition, before := range s.latest {
		at, ok := now[partition]
		switch {
		case !ok:
			s.t.Errorf("group %s: the committed offset %d of %s-%d has gone", s.group, before, s.topic, partition)
			delete(s.latest, partition)
		case at < before:
			s.t.Errorf("group %s: the committed offset of %s-%d went back from %d to %d", s.group, s.topic, partition, before, at)
		}
	}
	maps.Copy(s.latest, now)
}

// During runs what makes offsets go back or disappear on purpose, as when a
// test deletes the topic, and does not judge meanwhile.
func (s *OffsetSampler) During(change func()) {
	s.mu.Lock()
	s.epoch++
	s.blind++
	s.mu.Unlock()
	change()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.blind--
	clear(s.latest)
}

// Forget is called right before offsets are meant to go back, as when a test
// deletes the group, and right after.
func (s *OffsetSampler) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	clear(s.latest)
}

// Latest returns the committed offsets (next to read) of the last sample, by
// partition; those never committed are missing.
func (s *OffsetSampler) Latest() map[int32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.latest)
}

// Samples is the number of samples that the cluster answered.
func (s *OffsetSampler) Samples() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples
}
