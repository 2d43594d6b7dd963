package order

import (
	"context"
	"errors"
	"slices"

	"github.com/looplab/fsm"
)

// definition declares the state machine. It is a function, so that nothing can
// change the machine later.
func definition() fsm.Events {
	refundable := []State{
		StatePaid, StatePacked, StateShipped, StateDelivered, StateCancelled, StateReturned,
	}
	events := fsm.Events{
		on(TypeCreated, StatePending, None),
		on(TypeAmended, StatePending, StatePending),
		on(TypePaid, StatePaid, StatePending),
		on(TypePacked, StatePacked, StatePaid),
		on(TypeShipped, StateShipped, StatePaid, StatePacked),
		on(TypeDelivered, StateDelivered, StateShipped),
		on(TypeCancelled, StateCancelled, StatePending, StatePaid, StatePacked),
		on(TypeReturned, StateReturned, StateShipped, StateDelivered),
		on(TypeRefunded, StateRefunded, refundable...),
	}
	for _, s := range refundable {
		events = append(events, on(typePartRefund, s, s))
	}
	return events
}

// typePartRefund is OrderRefunded while there is more to refund. The machine
// wants one destination for an event in a state, and a refund has two.
const typePartRefund Type = "OrderRefunded in part"

func on(t Type, to State, from ...State) fsm.EventDesc {
	desc := fsm.EventDesc{Name: string(t), Dst: string(to)}
	for _, s := range from {
		desc.Src = append(desc.Src, string(s))
	}
	return desc
}

// move is an event that meets a state.
type move struct {
	from State
	on   Type
}

// table holds where each legal move leads, and is only ever read. A machine is
// one order's state behind a lock, and a cancelled context leaves it unusable
// for good; the table is shared by all orders and all goroutines.
var table = derive(definition())

// derive asks a machine about every move.
func derive(events fsm.Events) map[move]State {
	destinations := make(map[move]State)
	machine := fsm.NewFSM(string(None), events, nil)
	for _, from := range append(States(), None) {
		for _, on := range append(Types(), typePartRefund) {
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

// Transition is one arrow of the state machine.
type Transition struct {
	Event Type
	From  State
	To    State
	When  string // the condition on the event's amount; empty if there is none
}

// Transitions lists the arrows by event, then by state, both in the order of
// an order's life. The caller owns the slice.
func Transitions() []Transition {
	var all []Transition
	for _, event := range Types() {
		for _, from := range append([]State{None}, States()...) {
			for _, way := range waysOf(event) {
				if to, legal := table[move{from, way.on}]; legal {
					all = append(all, Transition{Event: event, From: from, To: to, When: way.when})
				}
			}
		}
	}
	return all
}

// way is a name under which the machine knows an event, and when it has that name.
type way struct {
	on   Type
	when string
}

func waysOf(t Type) []way {
	switch t {
	case TypePaid:
		return []way{{t, "amount = total"}}
	case TypeRefunded:
		return []way{{t, "refunded + amount = paid"}, {typePartRefund, "refunded + amount < paid"}}
	default:
		return []way{{on: t}}
	}
}

// Allowed lists the types of events that are legal in a state, as far as their
// amounts fit. It is empty for a final state, and for one that is unknown.
func Allowed(from State) []Type {
	return slices.DeleteFunc(Types(), func(on Type) bool {
		_, legal := table[move{from, on}]
		return !legal
	})
}
