package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
)

const (
	watchInterval = 50 * time.Millisecond
	// stallLimit is how long everything may stand still.
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

// watch shows the progress until everything is published, projected, counted and told. The
// result of what publishes comes through finished.
func (s *services) watch(ctx context.Context, sent *published, finished <-chan error, config Config) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	began := time.Now()
	var ends map[int32]int64 // known once everything is published
	best, bestAt := int64(-1), began
	for given := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-finished:
			if err != nil {
				return err
			}
			given, finished = true, nil
		case <-ticker.C:
		}
		rest, err := s.rest(ctx)
		if err != nil {
			return err
		}
		if given && ends == nil && rest.messages == 0 {
			if ends, err = s.ends(ctx); err != nil {
				return err
			}
		}
		projected, moved, drained := int64(0), -rest.messages-rest.notifications, ends != nil
		for i, member := range s.members {
			if member.hasEnded() {
				return fmt.Errorf("the %s ended by itself", member.name) // stop says why
			}
			positions, err := positions(member.consumer)
			if err != nil {
				return fmt.Errorf("the %s: %w", member.name, err)
			}
			for partition, end := range ends {
				drained = drained && positions[partition] >= end
			}
			for _, position := range positions {
				moved += position
				if i == 0 {
					projected += position
				}
			}
		}
		if s.relay.hasEnded() {
			return errors.New("the relay ended by itself")
		}
		if drained && rest.notifications == 0 {
			return nil
		}
		if moved > best {
			best, bestAt = moved, time.Now()
		} else if time.Since(bestAt) > stallLimit {
			return fmt.Errorf("no progress for %s: %w", stallLimit, s.projector().consumer.Healthy())
		}
		if config.Progress.Due() {
			records, shop := sent.get(), s.shop.Summary()
			config.Progress.Update(fmt.Sprintf("published %d of %d orders, %d records; %d commands, %d in the outbox; projected %d records (%.0f/s); %d notifications to send",
				records.Orders, config.Orders, records.Records, shop.CarriedOut, rest.messages, projected,
				float64(projected)/time.Since(began).Seconds(), rest.notifications))
		}
	}
}

// rest is what is still to do beside projecting.
type rest struct {
	messages      int64 // in the outbox
	notifications int64 // to be sent
}

func (s *services) rest(ctx context.Context) (r rest, err error) {
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM notifications WHERE state IN ('pending', 'sending', 'unknown'))`).
		Scan(&r.messages, &r.notifications)
	if err != nil {
		err = fmt.Errorf("counting what is to do: %w", err)
	}
	return r, err
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

// positions returns how far each partition is read durably. The error says why one is halted, if any is.
func positions(consumer *kafkaio.Consumer) (map[int32]int64, error) {
	positions := map[int32]int64{}
	for _, p := range consumer.Status().Partitions {
		if p.HaltedReason != "" {
			return nil, fmt.Errorf("partition %d is halted: %s (%s)", p.Partition, p.HaltedReason, p.HaltedHint)
		}
		if p.Assigned && p.Position != projection.NoOffset {
			positions[p.Partition] = p.Position
		}
	}
	return positions, nil
}
