package generate

import (
	"fmt"
	"time"
)

// Config describes a stream of records. The zero value of every rate gives clean
// traffic: each event once, in order, legal.
type Config struct {
	Seed   uint64 // same Config, same records
	Orders int    // number of orders

	// InFlight is how many orders are interleaved at a time; 0 means 500.
	InFlight int
	// Window is by how many of its order's records an event is moved at
	// most when it is out of order; 0 means 4.
	Window int
	// Delay is by how many records a late repeat or a late version follows at
	// least; it follows at most ten times later. 0 means 500.
	Delay int
	// Amendments is how many times each Long-th order is amended; with Long 0
	// there are no long orders.
	Amendments int
	Long       int
	// Start is the time of the first event; zero means 2026-01-01 UTC.
	Start time.Time

	Rates
}

// Rates are probabilities per event, 0 to 1.
type Rates struct {
	Duplicate   float64 // the same bytes again, soon
	Reencoded   float64 // the same event again, written differently
	LateRepeat  float64 // the same bytes again, much later
	Disorder    float64 // an event after later ones of its order
	Conflict    float64 // what contradicts an event of the order
	Poison      float64 // what no decoder should accept
	Illegal     float64 // a good envelope that the order's state refuses
	Unsupported float64 // an unknown type or a higher schema version
	Gap         float64 // a version that never comes (one in three), or comes very late
	Tombstone   float64 // a null value
	NullKey     float64 // the event itself, with a null key
	HugeVersion float64 // an event far ahead: version 2^53+1

	// No faults, but other ways to write an event.
	CloudEvents float64 // as a CloudEvent, half of them in binary and half in structured mode; poison too
	Lines       float64 // OrderCreated as version 2 of its schema, with the lines of the order
}

// Faulty returns a mix of every fault in which most events still apply.
func Faulty() Rates {
	return Rates{
		Duplicate: 0.02, Reencoded: 0.01, LateRepeat: 0.02, Disorder: 0.05, Conflict: 0.005, Poison: 0.01,
		Illegal: 0.005, Unsupported: 0.003, Gap: 0.003, Tombstone: 0.002, NullKey: 0.005, HugeVersion: 0.0005,
	}
}

func (c Config) withDefaults() Config {
	if c.InFlight == 0 {
		c.InFlight = 500
	}
	if c.Window == 0 {
		c.Window = 4
	}
	if c.Delay == 0 {
		c.Delay = 500
	}
	if c.Start.IsZero() {
		c.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return c
}

func (c Config) validate() error {
	for name, n := range map[string]int{
		"orders": c.Orders, "in flight": c.InFlight, "window": c.Window, "delay": c.Delay,
		"amendments": c.Amendments, "long": c.Long,
	} {
		if n < 0 {
			return fmt.Errorf("generate: %s is %d, must not be negative", name, n)
		}
	}
	r := c.Rates
	for name, rate := range map[string]float64{
		"duplicate": r.Duplicate, "re-encoded": r.Reencoded, "late repeat": r.LateRepeat, "disorder": r.Disorder,
		"conflict": r.Conflict, "poison": r.Poison, "illegal": r.Illegal, "unsupported": r.Unsupported,
		"gap": r.Gap, "tombstone": r.Tombstone, "null key": r.NullKey, "huge version": r.HugeVersion, "CloudEvents": r.CloudEvents, "lines": r.Lines,
	} {
		if !(rate >= 0 && rate <= 1) { // also refuses NaN
			return fmt.Errorf("generate: %s rate is %v, must be between 0 and 1", name, rate)
		}
	}
	if year := c.Start.UTC().Year(); year < 1970 || year > 9000 {
		return fmt.Errorf("generate: start %s is outside the years 1970 to 9000", c.Start)
	}
	return nil
}
