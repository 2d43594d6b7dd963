// Package notification is the state machine of one notification: what has been done
// about it, and what may be done next. All of it is pure and safe for concurrent use.
package notification

import "fmt"

// State is where a notification stands. The texts are stored and shown as they are.
type State string

// The states.
const (
	Pending    State = "pending"    // to be sent, now or later; the receiver has not acted on it
	Sending    State = "sending"    // committed before the receiver is called
	Sent       State = "sent"       // the receiver has acted on it
	Failed     State = "failed"     // the receiver refuses it: it waits for an operator
	Unknown    State = "unknown"    // the receiver may have acted on it: it is asked before anything is sent again
	Suppressed State = "suppressed" // of an event that was read again on purpose: never sent
	Cancelled  State = "cancelled"  // by an operator
)

// States lists every state.
func States() []State {
	return []State{Pending, Sending, Sent, Failed, Unknown, Suppressed, Cancelled}
}

// Event is something that happens to a notification.
type Event string

// The events.
const (
	Claim    Event = "claim"    // a worker is about to call the receiver
	Accept   Event = "accept"   // the receiver says that it has acted
	Postpone Event = "postpone" // the receiver says: not now; it has not acted
	Refuse   Event = "refuse"   // the receiver says: never; or it was tried too often
	Lose     Event = "lose"     // no answer: a timeout, a cut connection, a crash
	Retry    Event = "retry"    // an operator wants it sent
	Cancel   Event = "cancel"   // an operator does not
)

// Events lists every event.
func Events() []Event { return []Event{Claim, Accept, Postpone, Refuse, Lose, Retry, Cancel} }

// TransitionError says that an event cannot happen to a notification in its state.
type TransitionError struct {
	From  State
	Event Event
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("a notification that is %s cannot have: %s", e.From, e.Event)
}
