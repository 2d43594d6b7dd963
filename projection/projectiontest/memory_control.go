package projectiontest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// control is what is stored of whether groups may consume.
type control struct {
	consumption map[string]projection.Consumption
	refused     []refusals
	noted       []eventsNote
}

type refusals struct {
	group string
	at    time.Time
	projection.Refusals
}

type eventsNote struct {
	group  string
	at     time.Time
	events int64
}

func (c control) clone() control {
	return control{maps.Clone(c.consumption), slices.Clone(c.refused), slices.Clone(c.noted)}
}

var _ projection.ControlStore = (*Memory)(nil)

// NoteRefusals implements projection.Tx.
func (t *memoryTx) NoteRefusals(_ context.Context, key projection.WatermarkKey, refused []projection.Refusals, p projection.BreakerPolicy) (projection.BreakerWindow, error) {
	now := time.Now()
	c := &t.control
	for _, r := range refused {
		c.refused = append(c.refused, refusals{key.Group, now, r})
	}
	w := projection.BreakerWindow{Events: -1}
	orders := map[projection.Outcome]map[string]bool{}
	for _, r := range c.refused {
		if r.group != key.Group || now.Sub(r.at) > p.Window {
			continue
		}
		at := slices.IndexFunc(w.Refused, func(x projection.Refusals) bool { return x.Reason == r.Reason })
		if at < 0 {
			at = len(w.Refused)
			w.Refused = append(w.Refused, projection.Refusals{Reason: r.Reason})
			orders[r.Reason] = map[string]bool{}
		}
		w.Refused[at].Letters += r.Letters
		for _, id := range r.OrderIDs {
			orders[r.Reason][id] = true
		}
		w.Refused[at].Orders = int64(len(orders[r.Reason]))
	}
	for _, n := range c.noted {
		if n.group == key.Group && (w.Events < 0 || now.Sub(n.at) >= p.Window) {
			w.Events = t.events(key.Group) - n.events
		}
	}
	return w, nil
}

// events counts what was decided first below a group's watermarks.
func (s *state) events(group string) (n int64) {
	for key, mark := range s.marks {
		if key.Group == group {
			n += mark.Counts.Total()
		}
	}
	return n
}

// TripBreaker implements projection.Tx.
func (t *memoryTx) TripBreaker(_ context.Context, group string, trip projection.BreakerTrip) error {
	trip.Since = time.Now()
	if c := t.control.consumption[group]; c.Breaker == nil {
		c.Breaker = &trip
		t.control.set(group, c)
	}
	return nil
}

func (c *control) set(group string, consumption projection.Consumption) {
	if c.consumption == nil {
		c.consumption = map[string]projection.Consumption{}
	}
	c.consumption[group] = consumption
}

// Consumption implements projection.ControlStore.
func (m *Memory) Consumption(_ context.Context, group string) (projection.Consumption, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.control.consumption[group], nil
}

// SetConsumption stores whether a group may consume. Without a reason not to, it also
// clears the breaker's window.
func (m *Memory) SetConsumption(group string, c projection.Consumption) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.control.set(group, c)
	if c.Closed() == nil {
		m.state.control.refused, m.state.control.noted = nil, nil
		m.note(group)
	}
}

// NoteEvents implements projection.ControlStore.
func (m *Memory) NoteEvents(_ context.Context, group string, _, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(group)
	return nil
}

func (m *Memory) note(group string) {
	m.state.control.noted = append(m.state.control.noted, eventsNote{group, time.Now(), m.state.events(group)})
}
