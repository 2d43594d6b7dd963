package notification

import (
	"context"
	"errors"

	"github.com/looplab/fsm"
)

// definition declares the state machine. It is a function, so that nothing can
// change the machine later.
func definition() fsm.Events {
	return fsm.Events{
		// Out of unknown: the receiver was asked, and has not acted.
		on(Claim, Sending, Pending, Unknown),
		on(Accept, Sent, Sending, Unknown),
		on(Postpone, Pending, Sending),
		on(Refuse, Failed, Sending, Unknown),
		// To stay unknown is a transition, too: nobody could be asked.
		on(Lose, Unknown, Sending, Unknown),
		on(Retry, Pending, Failed, Unknown, Suppressed, Cancelled),
		on(Cancel, Cancelled, Pending, Failed, Unknown),
	}
}

func on(e Event, to State, from ...State) fsm.EventDesc {
	desc := fsm.EventDesc{Name: string(e), Dst: string(to)}
	for _, s := range from {
		desc.Src = append(desc.Src, string(s))
	}
	return desc
}

type move struct {
	from State
	on   Event
}

// table holds where each legal move leads, and is only ever read: a machine is one
// notification's state behind a lock, the table is shared by all.
var table = derive(definition())

func derive(events fsm.Events) map[move]State {
	destinations := make(map[move]State)
	machine := fsm.NewFSM(string(Pending), events, nil)
	for _, from := range States() {
		for _, on := range Events() {
			machine.SetState(string(from))
			err := machine.Event(context.Background(), string(on))
			// Staying in a state is legal, although the machine calls it an error.
			if err == nil || errors.As(err, new(fsm.NoTransitionError)) {
				destinations[move{from, on}] = State(machine.Current())
			}
		}
	}
	return destinations
}

// Next is where an event leads. The error is a *TransitionError.
func Next(from State, on Event) (State, error) {
	to, legal := table[move{from, on}]
	if !legal {
		return from, &TransitionError{From: from, Event: on}
	}
	return to, nil
}

// From lists the states in which an event can happen.
func From(on Event) []State {
	var from []State
	for _, s := range States() {
		if _, legal := table[move{s, on}]; legal {
			from = append(from, s)
		}
	}
	return from
}
