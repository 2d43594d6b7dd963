package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/projection"
)

const (
	watchInterval = 50 * time.Millisecond
	// stallLimit is how long the projector may stand still.
	stallLimit = time.Minute
)

// published is how much was published so far.
type published struct {
	mu      sync.Mutex
	summary publish.Summary
}

func (p *published) set(s publish.Summary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary = s
}

func (p *published) get() publish.Summary {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.summary
}

// watch shows the progress until everything is published and projected. The
// publisher's result comes through finished.
func (s *services) watch(ctx context.Context, sent *published, finished <-chan error, config Config) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	began := time.Now()
	var ends map[int32]int64 // known once everything is published
	best, bestAt := int64(-1), began
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.projector.ended:
			return errors.New("the projector ended by itself") // stop says why
		case err := <-finished:
			if err != nil {
				return err
			}
			if ends, err = s.ends(ctx); err != nil {
				return err
			}
			finished = nil
		case <-ticker.C:
		}
		positions, halted := s.positions()
		if halted != "" {
			return fmt.Errorf("the projector halted: %s", halted)
		}
		projected, drained := int64(0), ends != nil
		for _, position := range positions {
			projected += position
		}
		for partition, end := range ends {
			drained = drained && positions[partition] >= end
		}
		if drained {
			return nil
		}
		if projected > best {
			best, bestAt = projected, time.Now()
		} else if time.Since(bestAt) > stallLimit {
			return fmt.Errorf("the projector made no progress for %s: %w", stallLimit, s.projector.app.Consumer().Healthy())
		}
		if config.Progress.Due() {
			records := sent.get()
			config.Progress.Update(fmt.Sprintf("published %d of %d orders, %d records; projected %d records (%.0f/s), lag %d",
				records.Orders, config.Orders, records.Records, projected,
				float64(projected)/time.Since(began).Seconds(), max(0, records.Records-projected)))
		}
	}
}

// ends returns where each partition's log ends.
func (s *services) ends(ctx context.Context) (map[int32]int64, error) {
	ranges, err := s.reader.Ranges(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends := make(map[int32]int64, len(ranges))
	for _, r := range ranges {
		ends[r.Partition] = r.Until
	}
	return ends, nil
}

// positions returns how far each partition is projected durably, and why one
// is halted, if any is.
func (s *services) positions() (positions map[int32]int64, halted string) {
	positions = map[int32]int64{}
	for _, p := range s.projector.app.Consumer().Status().Partitions {
		if p.HaltedReason != "" {
			halted = fmt.Sprintf("partition %d: %s (%s)", p.Partition, p.HaltedReason, p.HaltedHint)
		}
		if p.Assigned && p.Position != projection.NoOffset {
			positions[p.Partition] = p.Position
		}
	}
	return positions, halted
}
