package schemacheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// undecided says what an accepted event still depends on.
func undecided(env *projection.Envelope) []string {
	notes := []string{
		fmt.Sprintf("record key: it has to be %q, or null", env.OrderID),
		fmt.Sprintf("version: the event is applied when the order is at version %d; before that it waits, and afterwards it is a duplicate or a conflict", env.Version-1),
		"event ID: the order must not have used it for another version",
	}
	var states, rules []string
	for _, move := range order.Transitions() {
		if move.Event != env.Event.Type() {
			continue
		}
		state := string(move.From)
		if move.From == order.None {
			state = "(no event yet)"
		}
		if !slices.Contains(states, state) {
			states = append(states, state)
		}
		if move.When != "" && !slices.Contains(rules, move.When) {
			rules = append(rules, move.When)
		}
	}
	notes = append(notes, fmt.Sprintf("state: %s is legal in %s", env.Event.Type(), strings.Join(states, ", ")))
	amount := func(m order.Money) {
		note := fmt.Sprintf("amount: %s has to be in the order's currency", m)
		if len(rules) > 0 {
			note += ", with " + strings.Join(rules, " or ")
		}
		notes = append(notes, note)
	}
	switch e := env.Event.(type) {
	case order.Amended:
		amount(e.Total)
	case order.Paid:
		amount(e.Amount)
	case order.Refunded:
		amount(e.Amount)
	}
	return notes
}
