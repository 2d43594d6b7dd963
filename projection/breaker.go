package projection

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// BreakerPolicy says when the breaker opens: when most of the latest events are new
// dead letters of one reason, or were held, the events are not bad, a deployment is, and to go on would only
// make more letters. Events of an unsupported type do not count: their orders wait
// safely for an upgrade. Zero values mean the defaults.
type BreakerPolicy struct {
	Disabled bool
	Window   time.Duration // how far back it looks (5 min)
	// MinLetters is how many letters there must be, and of how many orders (100).
	MinLetters int64
	// MaxHeld is how many held records of the group may be open (10,000). One more opens the breaker.
	MaxHeld int64
}

// Defaults of BreakerPolicy.
const (
	DefaultBreakerWindow     = 5 * time.Minute
	DefaultBreakerMinLetters = 100
	DefaultMaxHeld           = 10_000
)

func (p BreakerPolicy) withDefaults() BreakerPolicy {
	p.Window = cmp.Or(p.Window, DefaultBreakerWindow)
	p.MinLetters = cmp.Or(p.MinLetters, DefaultBreakerMinLetters)
	p.MaxHeld = cmp.Or(p.MaxHeld, DefaultMaxHeld)
	return p
}

// BreakerWindow is what the breaker judges: a group's latest events.
type BreakerWindow struct {
	Events int64 // all of them; negative when it is not known
	// Refused holds those that became letters, by reason.
	Refused []Refusals
}

// Refusals counts events that became dead letters of one reason, or that were held.
type Refusals struct {
	Reason  Outcome
	Letters int64
	// Orders is of how many orders they are, counted no further than is needed to tell that they are many.
	Orders int64
	// OrderIDs names some of the orders, where they are not counted yet.
	OrderIDs []string
}

// judge returns the trip when the window opens the breaker.
func (p BreakerPolicy) judge(w BreakerWindow) (trip BreakerTrip, open bool) {
	for _, r := range w.Refused {
		if counts(r.Reason) && w.Events >= 0 && r.Letters >= p.MinLetters && r.Orders >= p.MinLetters && 2*r.Letters > w.Events {
			return BreakerTrip{Reason: r.Reason, Letters: r.Letters, Orders: r.Orders, Events: w.Events}, true
		}
	}
	return BreakerTrip{}, false
}

// counts reports whether letters of that reason can open the breaker.
func counts(reason Outcome) bool {
	return reason == Invalid || reason == Conflict || reason == Illegal || reason == Held
}

// refusals counts the batch's first decisions that can open the breaker. It names no more
// orders of a reason than maxOrders.
func (b *batch) refusals(watermark, maxOrders int64) []Refusals {
	var all []Refusals
	var seen map[Outcome]map[string]bool
	for i := range b.items {
		it := &b.items[i]
		// Records that join a queue are of an order that was counted when its first record was held.
		if !counts(it.outcome) || it.held || it.rec.Control || it.rec.Offset < watermark {
			continue
		}
		at := slices.IndexFunc(all, func(r Refusals) bool { return r.Reason == it.outcome })
		if at < 0 {
			at = len(all)
			all = append(all, Refusals{Reason: it.outcome})
			if seen == nil {
				seen = make(map[Outcome]map[string]bool)
			}
			seen[it.outcome] = make(map[string]bool)
		}
		all[at].Letters++
		if id := it.blameID(); int64(len(all[at].OrderIDs)) < maxOrders && !seen[it.outcome][id] {
			seen[it.outcome][id] = true
			all[at].OrderIDs = append(all[at].OrderIDs, id)
		}
	}
	return all
}

// blameID names the order that a refused record belongs to, as far as it can be
// told. Records that name none stand each for themselves.
func (it *item) blameID() string {
	switch {
	case it.invalid == nil:
		return it.env.OrderID
	case it.invalid.OrderID != "":
		return it.invalid.OrderID
	case len(it.rec.Key) > 0:
		return string(it.rec.Key)
	}
	return fmt.Sprintf("%d/%d", it.rec.Partition, it.rec.Offset)
}
