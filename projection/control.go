package projection

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ControlStore is where it is stored whether a group may consume.
type ControlStore interface {
	// Consumption reads the group's state.
	Consumption(ctx context.Context, group string) (Consumption, error)
	// NoteEvents notes how many events the group has counted, for the breaker to tell
	// later how many there were since, and forgets what no window needs any more.
	// However many members call it, it is done about once in every interval.
	NoteEvents(ctx context.Context, group string, interval, window time.Duration) error
}

// ControlConfig is what a Control is made of. Zero values mean the defaults.
type ControlConfig struct {
	Group      string       // required
	Store      ControlStore // required
	Breaker    BreakerPolicy
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	Interval     time.Duration // between looks at the stored state (1 s)
	NoteInterval time.Duration // between notes of the events counted (10 s)
	Timeout      time.Duration // of one question (5 s)
}

// Control follows, for one member, whether its group may consume. It is the Gate of
// its consumer, and closed until the stored state was read once. While the database does not
// answer, the last answer holds.
type Control struct {
	cfg    ControlConfig
	log    *slog.Logger
	paused prometheus.Gauge
	open   prometheus.Gauge

	mu      sync.Mutex
	known   bool
	state   Consumption
	changed chan struct{} // closed and replaced with every change
	trips   int           // of this member, so that an answer from before one is not taken for news
}

var _ Gate = (*Control)(nil)

// NewControl returns a control; Run makes it follow.
func NewControl(cfg ControlConfig) (*Control, error) {
	if cfg.Group == "" || cfg.Store == nil {
		return nil, errors.New("control: Group and Store are required")
	}
	cfg.Breaker = cfg.Breaker.withDefaults()
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.NoteInterval = cmp.Or(cfg.NoteInterval, 10*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	auto := promauto.With(cfg.Registerer)
	return &Control{
		cfg: cfg, log: cfg.Logger, changed: make(chan struct{}),
		paused: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_consumption_paused", Help: "1 while the group is paused by an operator.",
		}),
		open: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_breaker_open", Help: "1 while the breaker is open: most events were dead-lettered for one reason, or too many are held, and the group waits for an operator.",
		}),
	}, nil
}

// Closed implements Gate.
func (c *Control) Closed() (changed <-chan struct{}, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.changed, errUnknownConsumption
	}
	return c.changed, c.state.Closed()
}

// Run follows the stored state until ctx ends.
func (c *Control) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	var noted time.Time
	failing := false
	for {
		// The note comes first: what is counted before it does not belong to a window that begins now.
		err := error(nil)
		if !c.cfg.Breaker.Disabled && time.Since(noted) >= c.cfg.NoteInterval {
			if err = c.note(ctx); err == nil {
				noted = time.Now()
			}
		}
		if err == nil {
			err = c.look(ctx)
		}
		if err != nil && !failing && ctx.Err() == nil {
			c.log.Warn("the database does not say whether consumption is paused; the last answer holds", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Control) note(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.cfg.Store.NoteEvents(ctx, c.cfg.Group, c.cfg.NoteInterval, c.cfg.Breaker.Window)
}

func (c *Control) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.mu.Lock()
	trips := c.trips
	c.mu.Unlock()
	state, err := c.cfg.Store.Consumption(ctx, c.cfg.Group)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if trips == c.trips {
		c.set(state)
	}
	return nil
}

// Tripped closes the gate at once, without waiting for the next look. It is called once
// the transaction in which Judge tripped the breaker has committed.
func (c *Control) Tripped(trip BreakerTrip) {
	trip.Since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips++
	if c.state.Breaker == nil {
		state := c.state
		state.Breaker = &trip
		c.set(state)
	}
}

// set takes a state, and says what is new. It is called with the lock held.
func (c *Control) set(state Consumption) {
	before, news := c.state, !c.known
	c.state, c.known = state, true
	gauge(c.paused, state.Pause != nil)
	gauge(c.open, state.Breaker != nil)
	if state.Breaker != nil && before.Breaker == nil {
		news = true
		c.log.Error("the breaker is open: consumption pauses, nothing is lost", "reason", state.Breaker.Reason.String(),
			"letters", state.Breaker.Letters, "events", state.Breaker.Events, "hint", (&PausedError{state}).Hint())
	}
	if state.Pause != nil && before.Pause == nil {
		news = true
		c.log.Warn("consumption is paused", "by", state.Pause.Actor, "since", state.Pause.Since, "comment", state.Pause.Comment,
			"hint", "resume it with: orderprojector resume --comment TEXT")
	}
	if state.Closed() == nil && before.Closed() != nil {
		news = true
		c.log.Info("consumption resumes")
	}
	if news || (state.Closed() == nil) != (before.Closed() == nil) {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

func gauge(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}
