package orders

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orderprojector/orderprojector/domain/order"
)

// IllegalError says that an order as it is does not allow a command. Nothing was changed.
type IllegalError struct {
	Command Name
	OrderID string
	State   order.State // order.None where there is no such order
	Event   order.Type
	Err     error // of package order
}

func (e *IllegalError) Error() string {
	if e.State == order.None {
		return fmt.Sprintf("cannot %s order %s: there is no such order", e.Command, e.OrderID)
	}
	var rule *order.RuleError
	if errors.As(e.Err, &rule) {
		return fmt.Sprintf("cannot %s order %s: %s", e.Command, e.OrderID, rule.Detail)
	}
	return fmt.Sprintf("cannot %s order %s: it is %s", e.Command, e.OrderID, e.State)
}

func (e *IllegalError) Unwrap() error { return e.Err }

// Hint names the states that allow the command.
func (e *IllegalError) Hint() string {
	var states []string
	for _, from := range order.States() {
		for _, event := range order.Allowed(from) {
			if event == e.Event {
				states = append(states, string(from))
			}
		}
	}
	if len(states) == 0 {
		return fmt.Sprintf("%s is for orders that do not exist yet", e.Command)
	}
	return fmt.Sprintf("%s is allowed in state %s", e.Command, strings.Join(states, ", "))
}

// KeyReusedError says that an idempotency key belongs to another command. Nothing was changed.
type KeyReusedError struct {
	Key         string
	Given, Kept string // the commands, as JSON
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("idempotency key %q belongs to another command: %s, not %s", e.Key, e.Kept, e.Given)
}

// Hint says what to do.
func (e *KeyReusedError) Hint() string { return "use a new key for each command" }

// errOvertaken says that somebody else changed the order between reading and writing.
var errOvertaken = errors.New("the order was changed by somebody else meanwhile")
