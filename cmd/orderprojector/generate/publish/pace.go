package publish

import (
	"context"
	"time"
)

// pace spreads records evenly over time.
type pace struct {
	interval time.Duration // between records; 0 for no limit
	next     time.Time
}

func newPace(perSecond float64, start time.Time) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{interval: time.Duration(float64(time.Second) / perSecond), next: start}
}

// wait returns when the next record is due, or ctx's error. Sleeping for less
// than a millisecond is left to the next record.
func (p *pace) wait(ctx context.Context) error {
	if p.interval == 0 {
		return nil
	}
	ahead := time.Until(p.next)
	p.next = p.next.Add(p.interval)
	if ahead < time.Millisecond {
		return nil
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
