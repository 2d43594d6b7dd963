package projection

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Trouble is what holds a partition up while it is tried again and again.
type Trouble struct {
	TopicPartition
	What     string // is tried
	Class    Failure
	Err      error // of the last attempt
	Since    time.Time
	Attempts int    // that failed
	Advice   string // what an operator can do; empty where nothing is known
}

func (t *Trouble) Error() string {
	msg := fmt.Sprintf("%s-%d: %s has failed %d times in %s (%s): %v", t.Topic, t.Partition, t.What, t.Attempts,
		time.Since(t.Since).Round(time.Second), t.Class, t.Err)
	if t.Advice != "" {
		msg += " (" + t.Advice + ")"
	}
	return msg
}

func (t *Trouble) Unwrap() error { return t.Err }

// Hint says what an operator can do, "" where nothing is known.
func (t *Trouble) Hint() string { return t.Advice }

// Troubles returns what holds partitions up now, in the order of the partitions. It is safe for concurrent use.
func (p *Projector) Troubles() []*Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Trouble, 0, len(p.troubles))
	for _, t := range p.troubles {
		snapshot := *t
		all = append(all, &snapshot)
	}
	slices.SortFunc(all, func(a, b *Trouble) int { return cmp.Compare(a.Partition, b.Partition) })
	return all
}

// attempts are those at one piece of a partition's work.
type attempts struct {
	projector *Projector
	log       *slog.Logger
	tp        TopicPartition
	wait      *backoff.ExponentialBackOff
}

func (p *Projector) attempts(log *slog.Logger, tp TopicPartition) *attempts {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = p.cfg.RetryBase
	b.Multiplier = 2
	b.MaxInterval = p.cfg.RetryCap
	b.Reset()
	return &attempts{projector: p, log: log, tp: tp, wait: b}
}

// over ends the partition's trouble, if there was any.
func (a *attempts) over() { a.projector.forgetTrouble(a.tp) }

func (p *Projector) forgetTrouble(tp TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.troubles, tp)
}

// pause waits before the next attempt, and says why there is one.
func (a *attempts) pause(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		a.over()
		return context.Cause(ctx)
	}
	p := a.projector
	class := p.classify(err)
	p.metrics.retries.WithLabelValues(class.String()).Inc()
	delay := a.wait.NextBackOff()
	if class == LostRace {
		delay /= 10 // nothing is wrong: decide again from a fresh read
	}
	level := slog.LevelWarn
	if class == Unhealthy {
		level = slog.LevelError
	}
	attrs := []any{"class", class.String(), "in", delay.String(), "error", err}
	advice := p.cfg.Hint(err)
	if advice != "" {
		attrs = append(attrs, "hint", advice)
	}
	a.log.Log(ctx, level, what+" failed, trying again", attrs...)
	a.note(what, class, err, advice)
	select {
	case <-ctx.Done():
		a.over()
		return context.Cause(ctx)
	case <-time.After(delay):
		return nil
	}
}

func (a *attempts) note(what string, class Failure, err error, advice string) {
	p := a.projector
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.troubles[a.tp]
	if t == nil {
		t = &Trouble{TopicPartition: a.tp, Since: time.Now()}
		p.troubles[a.tp] = t
	}
	t.What, t.Class, t.Err, t.Advice = what, class, err, advice
	t.Attempts++
}
