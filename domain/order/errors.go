package order

import (
	"errors"
	"fmt"
	"strings"
)

// ErrIllegal is matched by the errors that say: this event cannot happen to
// this order. Trying again does not help.
var ErrIllegal = errors.New("illegal event")

// TransitionError says that events of this type are never legal in this state.
// It matches ErrIllegal.
type TransitionError struct {
	From  State
	Event Type
}

func (e *TransitionError) Error() string {
	if e.From == None {
		return fmt.Sprintf("%s is illegal before %s: the order does not exist yet", e.Event, TypeCreated)
	}
	var legal []string
	for _, t := range Allowed(e.From) {
		legal = append(legal, string(t))
	}
	if legal == nil {
		return fmt.Sprintf("%s is illegal in state %s, which is final", e.Event, e.From)
	}
	return fmt.Sprintf("%s is illegal in state %s (legal there: %s)", e.Event, e.From, strings.Join(legal, ", "))
}

// Is reports whether target is ErrIllegal.
func (e *TransitionError) Is(target error) bool { return target == ErrIllegal }

// RuleError says that an event breaks a business rule. It matches ErrIllegal.
type RuleError struct {
	Event  Type
	Rule   Rule
	Detail string // the amounts that do not fit, in words
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("%s breaks the %s rule: %s", e.Event, e.Rule, e.Detail)
}

// Is reports whether target is ErrIllegal.
func (e *RuleError) Is(target error) bool { return target == ErrIllegal }

// UnknownStateError says that an order is stored with a state that is not one
// of States. No event is to blame for that, so it does not match ErrIllegal.
type UnknownStateError struct {
	State State
}

func (e *UnknownStateError) Error() string {
	return fmt.Sprintf("unknown order state %q: stored by a newer release, or changed by hand", string(e.State))
}

// MoneyError says why a text is not an amount of money that can be kept exactly.
type MoneyError struct {
	Amount   string // as given, but shortened if it is long
	Currency string // likewise
	Reason   string
}

func (e *MoneyError) Error() string {
	return fmt.Sprintf("amount %q in currency %q: %s", e.Amount, e.Currency, e.Reason)
}
