// Package order is the order's state machine and its money: which events can
// happen to an order, and what the order is after them. All of it is pure (no
// I/O, no clock, no logging) and safe for concurrent use.
//
//go:generate go test -run TestDocumentIsCurrent -update .
package order

import "fmt"

// Order is what the events of one order add up to. The zero value is the order
// before its first event. Amounts are in minor units of Currency.
//
// In an order that Apply returned, no amount is negative, PaidMinor is either
// zero or TotalMinor, and RefundedMinor is at most PaidMinor.
type Order struct {
	State         State
	CustomerID    string
	Currency      string // ISO 4217 code
	TotalMinor    int64
	PaidMinor     int64
	RefundedMinor int64
}

// Apply returns the order as it is after the event. It is total: any order and
// any event give either the next order, or the same order and an error. The
// error is a *TransitionError or a *RuleError (both match ErrIllegal) if the
// event cannot happen to the order, and an *UnknownStateError if the order's
// own state makes no sense.
//
// An event that leaves the state as it is, such as OrderAmended, is applied
// like any other.
func Apply(o Order, e Event) (Order, error) {
	on := typeOf(e)
	if _, legal := table[move{o.State, on}]; !legal {
		if !o.State.known() {
			return o, &UnknownStateError{State: o.State}
		}
		return o, &TransitionError{From: o.State, Event: on}
	}
	next, err := record(o, e)
	if err != nil {
		return o, err
	}
	if on == TypeRefunded && next.RefundedMinor < next.PaidMinor {
		on = typePartRefund
	}
	next.State = table[move{o.State, on}]
	return next, nil
}

// typeOf is e.Type() where e can be trusted to have one: a nil event or a nil
// pointer in it would panic. Anything else gets its Go type for a name, which
// no transition knows.
func typeOf(e Event) Type {
	switch e.(type) {
	case Created, Amended, Paid, Packed, Shipped, Delivered, Cancelled, Returned, Refunded:
		return e.Type()
	}
	return Type(fmt.Sprintf("%T", e))
}
