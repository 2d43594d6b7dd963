package projection

import (
	"context"
	"errors"
)

// Failure classifies what went wrong with a transaction.
type Failure uint8

// The failure classes.
const (
	// Transient failures heal by themselves: connection loss, serialization failures, a full disk.
	Transient Failure = iota
	// TooSlow means that the transaction ended by a deadline: a smaller one may make it.
	TooSlow
	// LostRace means that somebody else was faster: decide again from a fresh read.
	LostRace
	// BadData means that the database refuses the data of some record.
	BadData
	// Unhealthy failures need an operator (a missing grant, a wrong schema). They are retried like
	// transient ones: an outage is not poison.
	Unhealthy
	failureCount
)

var failureNames = [failureCount]string{"transient", "deadline", "lost_race", "bad_data", "infrastructure"}

func (f Failure) String() string { return failureNames[f] }

// errGuardMissed rolls a transaction back in which a guard was missed twice.
var errGuardMissed = errors.New("a row changed under the batch")

// panicError carries a panic of the deciding code to where a record can be blamed.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return "panic while deciding" }

// errOlderNeeded asks for records to be read again before the batch is tried once more.
type errOlderNeeded struct{ coordinates []coordinate }

func (e *errOlderNeeded) Error() string { return "older records are needed to decide" }

func isOneOf[T error](err error) (T, bool) {
	var target T
	ok := errors.As(err, &target)
	return target, ok
}

// timedOut reports that the work ended by its own deadline while the caller's context lives on.
func timedOut(caller, work context.Context) bool {
	return caller.Err() == nil && errors.Is(work.Err(), context.DeadlineExceeded)
}
