package projection

import (
	"errors"
	"fmt"
	"time"
)

// Consumption is whether a group may consume, as it is stored for all of its members.
type Consumption struct {
	Pause   *Pause       // nil: not paused by an operator
	Breaker *BreakerTrip // nil: closed
}

// Pause is an operator's decision that a group consumes nothing for now.
type Pause struct {
	By
	Since time.Time
}

// BreakerTrip is the opening of the breaker: most events became dead letters of one reason, or were held.
type BreakerTrip struct {
	Since   time.Time // zero until it is stored
	Reason  Outcome
	Letters int64 // of that reason, or held records
	Orders  int64 // of at least so many orders
	Events  int64 // among so many events; 0 when the number of open held records opened the breaker
}

// Closed returns nil when the group may consume, else a *PausedError.
func (c Consumption) Closed() error {
	if c.Pause == nil && c.Breaker == nil {
		return nil
	}
	return &PausedError{c}
}

// PausedError says why a group consumes nothing.
type PausedError struct{ Consumption }

func (e *PausedError) Error() string {
	var errs []error
	if p := e.Pause; p != nil {
		errs = append(errs, fmt.Errorf("consumption is paused by %s since %s: %s", p.Actor, p.Since.UTC().Format(time.RFC3339), p.Comment))
	}
	if b := e.Breaker; b != nil {
		errs = append(errs, fmt.Errorf("consumption is paused by the breaker since %s: %s", b.Since.UTC().Format(time.RFC3339), b))
	}
	return errors.Join(errs...).Error()
}

// Hint says what the operator can do.
func (e *PausedError) Hint() string {
	if e.Breaker != nil && e.Breaker.Reason == Held {
		return "look at the causes (held list), have them put right (held records are tried again meanwhile), then: orderprojector resume --comment TEXT"
	}
	if e.Breaker != nil {
		return fmt.Sprintf("look at the letters (dlq group --reason %s), have their cause put right, then: orderprojector resume --comment TEXT", e.Breaker.Reason)
	}
	return "orderprojector resume --comment TEXT"
}

func (b *BreakerTrip) String() string {
	switch {
	case b.Reason == Held && b.Events == 0:
		return fmt.Sprintf("%d records are held, more than the group may have", b.Letters)
	case b.Reason == Held:
		return fmt.Sprintf("%d of the last %d events are held, of %d orders or more", b.Letters, b.Events, b.Orders)
	}
	return fmt.Sprintf("%d of the last %d events are dead letters for the same reason (%s), of many orders", b.Letters, b.Events, b.Reason)
}

// errUnknownConsumption closes the gate until the stored state was read once.
var errUnknownConsumption = errors.New("it is not known yet whether consumption is paused: the database was not asked")
