package projection

import (
	"context"
	"errors"
	"fmt"
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
	// Unhealthy failures need an operator (a wrong schema, an exception raised by a trigger). They are retried like
	// transient ones: an outage is not poison.
	Unhealthy
	// Denied means that a grant is missing.
	Denied
	// Locked means that another session holds a lock for too long.
	Locked
	// Unanswered means that a COMMIT got no answer. It says nothing about any record.
	Unanswered
	// Unconnected means that no connection was to be had. It says nothing about any record.
	Unconnected
	failureCount
)

var failureNames = [failureCount]string{
	"transient", "deadline", "lost_race", "bad_data", "infrastructure", "infrastructure", "transient", "commit", "transient",
}

// outage reports whether the failure is nobody's in particular.
func (f Failure) outage() bool { return f == Unanswered || f == Unconnected }

func (f Failure) String() string { return failureNames[f] }

// NeedsOperator reports whether the failure does not pass by itself.
func (f Failure) NeedsOperator() bool { return f == Unhealthy || f == Denied }

// Counts reports whether a failure of a held record brings its letter nearer: the record itself may be the
// cause. Locks, deadlines, outages and missing grants are not.
func (f Failure) Counts() bool { return f == Unhealthy || f == BadData || f == LostRace }

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

// errUndrained says that an order has to be drained before one of its records can be decided: parked events whose turn has
// come are beyond the turn's budget.
type errUndrained struct {
	orderID string
	at      coordinate
}

func (e *errUndrained) Error() string {
	return "order " + quoted(e.orderID) + " has to be drained first"
}

// lockedError says that another session has locked an order's row.
type lockedError struct {
	orderID string
	err     error // of who waited for it; nil when nobody did
}

func (e *lockedError) Error() string {
	text := "another session holds the lock of order " + quoted(e.orderID)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}
func (e *lockedError) Unwrap() error { return e.err }

// RowError says that an order's stored row cannot be understood.
type RowError struct {
	OrderID string
	Err     error
}

func (e *RowError) Error() string { return fmt.Sprintf("order %s: %v", quoted(e.OrderID), e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

func isOneOf[T error](err error) (T, bool) {
	var target T
	ok := errors.As(err, &target)
	return target, ok
}

// timedOut reports that the work ended by its own deadline while the caller's context lives on.
func timedOut(caller, work context.Context) bool {
	return caller.Err() == nil && errors.Is(work.Err(), context.DeadlineExceeded)
}
