package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Relay is made of. Zero durations and counts mean the
// defaults that are named with them.
type Config struct {
	// Open takes the queue. It returns ErrStandby while another relay has it.
	Open func(ctx context.Context) (Queue, error)
	// OpenTopic opens the topic, anew for each time that this relay has the queue.
	OpenTopic func() (Topic, error)
	Encoder   Encoder
	Logger    *slog.Logger
	// Registerer takes the metrics; nil: none are exported.
	Registerer prometheus.Registerer
	// Hint says what an operator can do about an error, "" where nothing is known; nil means never.
	Hint func(error) string

	PollInterval    time.Duration // between looks at everything (1 s)
	StandbyInterval time.Duration // between attempts to take over (500 ms)
	// Lease is for how long messages are published without a word from the queue (4 s). It
	// must be shorter than what the queue takes to give a silent relay's place away.
	Lease      time.Duration
	StopGrace  time.Duration // for what is in flight when told to stop (5 s)
	RetryBase  time.Duration // first pause after a failure (100 ms)
	RetryCap   time.Duration // longest pause (5 s)
	StallLimit time.Duration // for how long a failure may last before Healthy fails (1 min)

	LimitInterval time.Duration // between looks at the size that the topic takes (1 min)

	MaxMessages int   // held in memory (8,192), roughly: up to twice as many
	MaxBytes    int64 // of them (32 MiB); a single larger one still goes through
	PageSize    int   // looked at at once (2,048)
	PerOrder    int   // messages of one order held in memory (64)
	// LoadBytes is how many bytes of messages, as they are stored, one statement reads or removes (8 MiB); a single larger message
	// still goes through. After a statement that took too long it is halved, together with PageSize.
	LoadBytes int64
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Open == nil || c.OpenTopic == nil:
		return c, errors.New("relay: Open and OpenTopic are required")
	case c.Encoder.Format != JSON && c.Encoder.Format != CloudEvents:
		return c, fmt.Errorf("relay: format %q is neither json nor cloudevents", c.Encoder.Format)
	case c.Encoder.Format == CloudEvents && c.Encoder.Source == "":
		return c, errors.New("relay: CloudEvents need a source")
	}
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.StandbyInterval = cmp.Or(c.StandbyInterval, 500*time.Millisecond)
	c.Lease = cmp.Or(c.Lease, 4*time.Second)
	c.StopGrace = cmp.Or(c.StopGrace, 5*time.Second)
	c.RetryBase = cmp.Or(c.RetryBase, 100*time.Millisecond)
	c.RetryCap = cmp.Or(c.RetryCap, 5*time.Second)
	c.StallLimit = cmp.Or(c.StallLimit, time.Minute)
	c.LimitInterval = cmp.Or(c.LimitInterval, time.Minute)
	c.LoadBytes = cmp.Or(c.LoadBytes, 8<<20)
	c.MaxMessages = cmp.Or(c.MaxMessages, 8192)
	c.MaxBytes = cmp.Or(c.MaxBytes, 32<<20)
	c.PageSize = cmp.Or(c.PageSize, 2048)
	c.PerOrder = cmp.Or(c.PerOrder, 64)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Hint == nil {
		c.Hint = func(error) string { return "" }
	}
	return c, nil
}
