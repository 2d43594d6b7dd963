package lettercopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/orderprojector/orderprojector/projection/portion"
)

// Config is what a Publisher is made of. Zero durations and counts mean the
// defaults that are named with them.
type Config struct {
	// Open begins a session with the queue. It returns ErrStandby while
	// somebody else has the right to publish.
	Open       func(ctx context.Context) (Queue, error)
	Topic      Topic
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	Interval        time.Duration // between looks while nothing is due (1 s)
	StandbyInterval time.Duration // between attempts to take over (5 s)
	SendTimeout     time.Duration // deadline of one round (30 s)
	StopGrace       time.Duration // for the round in flight when told to stop (3 s)
	RetryBase       time.Duration // first pause after a failure (500 ms)
	RetryCap        time.Duration // longest pause (30 s)
	LetterRetryCap  time.Duration // longest pause of a letter that is refused by itself (10 min)
	MaxLetters      int           // in one round (500)
	MaxBytes        int64         // of records in one round (4 MiB)
}

// Publisher copies dead letters to a topic until it is told to stop.
type Publisher struct {
	cfg      Config
	log      *slog.Logger
	copies   *prometheus.CounterVec
	failures *prometheus.CounterVec
	active   prometheus.Gauge

	portion *portion.Portion // of letters read at once

	failing Class // of the last round; "" when it went well
	repeats int
}

// NewPublisher returns a publisher; Run starts it.
func NewPublisher(cfg Config) (*Publisher, error) {
	if cfg.Open == nil || cfg.Topic == nil {
		return nil, errors.New("letter copies: Open and Topic are required")
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.StandbyInterval = cmp.Or(cfg.StandbyInterval, 5*time.Second)
	cfg.SendTimeout = cmp.Or(cfg.SendTimeout, 30*time.Second)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 3*time.Second)
	cfg.RetryBase = cmp.Or(cfg.RetryBase, 500*time.Millisecond)
	cfg.RetryCap = cmp.Or(cfg.RetryCap, 30*time.Second)
	cfg.LetterRetryCap = cmp.Or(cfg.LetterRetryCap, 10*time.Minute)
	cfg.MaxLetters = cmp.Or(cfg.MaxLetters, 500)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 4<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	auto := promauto.With(cfg.Registerer)
	p := &Publisher{
		cfg: cfg, log: cfg.Logger, portion: portion.New(portion.Size{Rows: cfg.MaxLetters, Bytes: cfg.MaxBytes}),
		copies: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_dead_letter_copies_total", Help: "Dead letters dealt with by the publisher of their copies, by what the copy holds.",
		}, []string{"form"}),
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_dead_letter_copies_failures_total", Help: "Failed attempts to copy dead letters to their topic, by class.",
		}, []string{"class"}),
		active: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_dead_letter_copies_active", Help: "1 while this member is the one that copies dead letters.",
		}),
	}
	for _, form := range []Form{Whole, WithoutValue, NoCopy} {
		p.copies.WithLabelValues(string(form))
	}
	for _, class := range Classes() {
		p.failures.WithLabelValues(string(class))
	}
	return p, nil
}

// Run copies letters until ctx ends; the round in flight then finishes within the
// stop grace. Every failure is waited out.
func (p *Publisher) Run(ctx context.Context) {
	wait := p.backoff()
	standby := false
	for ctx.Err() == nil {
		openCtx, cancel := context.WithTimeout(ctx, p.cfg.SendTimeout)
		queue, err := p.cfg.Open(openCtx)
		cancel()
		switch {
		case errors.Is(err, ErrStandby):
			if !standby {
				p.log.Info("standing by: " + err.Error())
				standby = true
			}
			sleep(ctx, p.cfg.StandbyInterval)
			continue
		case err == nil:
			standby = false
			p.active.Set(1)
			err = p.session(ctx, queue, wait)
			queue.Close()
			p.active.Set(0)
		}
		if err != nil && ctx.Err() == nil {
			p.failed(&Failure{Class: Database, Err: err})
			sleep(ctx, wait.NextBackOff())
		}
	}
}

// session works until ctx ends (nil) or the queue fails.
func (p *Publisher) session(ctx context.Context, queue Queue, wait *backoff.ExponentialBackOff) error {
	for ctx.Err() == nil {
		more, err := p.round(ctx, queue)
		var failure *Failure
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &failure):
			p.failed(failure)
			sleep(ctx, wait.NextBackOff())
			continue
		case err != nil:
			// The database may be away, or the portion too large for its deadline.
			p.portion.Halve()
			return err
		}
		p.portion.Grow()
		p.recovered()
		wait.Reset()
		if !more {
			sleep(ctx, p.cfg.Interval)
		}
	}
	return nil
}

// round copies what is due now, up to its bounds. A *Failure is the topic's; other
// errors are the queue's.
func (p *Publisher) round(ctx context.Context, queue Queue) (more bool, err error) {
	ctx, cancel := p.graceful(ctx)
	defer cancel()
	size := p.portion.Size()
	letters, err := queue.Due(ctx, size.Rows, size.Bytes)
	if err != nil {
		return false, fmt.Errorf("looking for dead letters to copy: %w", err)
	}
	if len(letters) == 0 {
		return false, nil
	}
	var settled, postponed []Receipt
	var pauses []time.Duration
	var failure *Failure
	for _, r := range p.cfg.Topic.Send(ctx, letters) {
		var common *Failure
		switch {
		case r.Err == nil:
			settled = append(settled, r)
		case errors.As(r.Err, &common):
			failure = common
		default:
			postponed = append(postponed, r)
			pauses = append(pauses, p.letterPause(r.Letter.CopyFailures))
		}
	}
	// What is acknowledged is recorded also when the round was cut short: a copy that is
	// not recorded is written again.
	recordCtx, cancelRecord := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.StopGrace)
	defer cancelRecord()
	if len(settled) > 0 {
		if err := queue.Settle(recordCtx, settled); err != nil {
			return false, fmt.Errorf("recording copies of dead letters: %w", err)
		}
	}
	if len(postponed) > 0 {
		if err := queue.Postpone(recordCtx, postponed, pauses); err != nil {
			return false, fmt.Errorf("recording failed copies of dead letters: %w", err)
		}
	}
	p.count(settled, postponed)
	if failure != nil {
		return false, failure
	}
	return true, nil
}

// graceful gives a round its deadline, and a little time after ctx has ended.
func (p *Publisher) graceful(ctx context.Context) (context.Context, context.CancelFunc) {
	round, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.SendTimeout)
	stop := context.AfterFunc(ctx, func() {
		if sleep(round, p.cfg.StopGrace) {
			cancel()
		}
	})
	return round, func() { stop(); cancel() }
}

func (p *Publisher) count(settled, postponed []Receipt) {
	for _, r := range settled {
		p.copies.WithLabelValues(string(r.Form)).Inc()
		switch r.Form {
		case WithoutValue:
			p.log.Warn("a dead letter was copied without its value", "letter", r.Letter.ID, "topic", r.Topic, "reason", r.Reason,
				"hint", "raise max.message.bytes of the topic for the ones to come; the database has the value")
		case NoCopy:
			p.log.Error("a dead letter cannot be copied", "letter", r.Letter.ID, "reason", r.Reason,
				"hint", "raise max.message.bytes of the topic for the ones to come; the database has the letter")
		}
	}
	for _, r := range postponed {
		p.failures.WithLabelValues(string(Refused)).Inc()
		p.log.Warn("the topic refuses the copy of a dead letter, trying again later", "letter", r.Letter.ID, "error", r.Err)
	}
}

// letterPause grows with a letter's own failures, so that it stays out of the others' way.
func (p *Publisher) letterPause(failures int) time.Duration {
	return min(p.cfg.LetterRetryCap, p.cfg.RetryBase<<min(failures, 20))
}

// failed counts a failure, and says it once, and then now and again.
func (p *Publisher) failed(f *Failure) {
	p.failures.WithLabelValues(string(f.Class)).Inc()
	if f.Class != p.failing {
		p.failing, p.repeats = f.Class, 0
	}
	if p.repeats%20 == 0 {
		p.log.Warn("copies of dead letters wait; the letters are safe in the database", "class", string(f.Class), "error", f.Err, "hint", f.Advice)
	}
	p.repeats++
}

func (p *Publisher) recovered() {
	if p.failing != "" {
		p.log.Info("copies of dead letters are written again", "failures", p.repeats)
	}
	p.failing, p.repeats = "", 0
}

func (p *Publisher) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = p.cfg.RetryBase, 2, p.cfg.RetryCap
	b.Reset()
	return b
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
