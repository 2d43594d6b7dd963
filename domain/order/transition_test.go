package order

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/looplab/fsm"
	"pgregory.net/rapid"
)

func TestDefinitionSaysNothingTwice(t *testing.T) {
	said := make(map[move]bool)
	for _, rule := range definition() {
		for _, from := range rule.Src {
			m := move{State(from), Type(rule.Name)}
			if said[m] {
				t.Errorf("%s in %q is declared twice: the machine keeps the last silently", m.on, m.from)
			}
			said[m] = true
			if !m.from.known() || !State(rule.Dst).known() || rule.Dst == string(None) {
				t.Errorf("%s leads from %q to %q", m.on, from, rule.Dst)
			}
			if m.on != typePartRefund && !slices.Contains(Types(), m.on) {
				t.Errorf("event %q is not a type", m.on)
			}
		}
	}
	if len(said) != len(table) {
		t.Errorf("%d moves are declared, %d derived", len(said), len(table))
	}
}

// The machine and the table walk side by side through any events.
func TestTableIsTheMachine(t *testing.T) {
	moves := append(Types(), typePartRefund, "OrderLost")
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.SampledFrom(append(States(), None, "archived")).Draw(t, "state")
		machine := fsm.NewFSM(string(state), definition(), nil)
		t.Repeat(map[string]func(*rapid.T){
			"event": func(t *rapid.T) {
				on := rapid.SampledFrom(moves).Draw(t, "event")
				err := machine.Event(context.Background(), string(on))
				to, legal := table[move{state, on}]
				if refused := errors.As(err, new(fsm.InvalidEventError)) || errors.As(err, new(fsm.UnknownEventError)); refused == legal {
					t.Fatalf("%s in %q: the table says %v, the machine %v", on, state, legal, err)
				}
				if legal {
					state = to
				}
			},
			"": func(t *rapid.T) {
				if State(machine.Current()) != state {
					t.Fatalf("the table is in %q, the machine in %q", state, machine.Current())
				}
			},
		})
	})
}

func TestRefundsHaveBothWays(t *testing.T) {
	for _, s := range States() {
		_, full := table[move{s, TypeRefunded}]
		to, part := table[move{s, typePartRefund}]
		if full != part || part && to != s {
			t.Errorf("%s: refund in full %v, in part %v to %q", s, full, part, to)
		}
	}
}

// What the table spares its users. If one of these habits changes, derive and
// the comments beside it need another look.
func TestHabitsOfTheMachine(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	m := fsm.NewFSM(string(StatePending), definition(), nil)
	if err := m.Event(context.Background(), string(TypeAmended)); !errors.As(err, new(fsm.NoTransitionError)) {
		t.Errorf("staying in a state: %v", err)
	}
	if err := m.Event(ctx, string(TypePaid)); !errors.Is(err, context.Canceled) {
		t.Errorf("an event under a cancelled context: %v", err)
	}
	if err := m.Event(context.Background(), string(TypePaid)); !errors.As(err, new(fsm.InTransitionError)) {
		t.Errorf("the same event afterwards: %v", err)
	}
	twice := derive(fsm.Events{on(TypeCreated, StatePaid, None), on(TypeCreated, StatePending, None)})
	if diff := cmp.Diff(map[move]State{{None, TypeCreated}: StatePending}, twice, cmp.AllowUnexported(move{})); diff != "" {
		t.Errorf("a rule declared twice (-want +got):\n%s", diff)
	}
}

func TestTransitionsAreTheTable(t *testing.T) {
	all := Transitions()
	if len(all) != len(table) {
		t.Errorf("%d transitions, but %d moves in the table", len(all), len(table))
	}
	for _, arrow := range all {
		if !slices.Contains(Allowed(arrow.From), arrow.Event) {
			t.Errorf("%+v is not among those allowed", arrow)
		}
	}
	all[0] = Transition{}
	if Transitions()[0] == all[0] {
		t.Error("the caller can change the transitions of others")
	}
}

func TestAllowed(t *testing.T) {
	for from, want := range map[State][]Type{
		None:          {TypeCreated},
		StatePending:  {TypeAmended, TypePaid, TypeCancelled},
		StateShipped:  {TypeDelivered, TypeReturned, TypeRefunded},
		StateRefunded: {},
		"archived":    {},
	} {
		if diff := cmp.Diff(want, Allowed(from)); diff != "" {
			t.Errorf("allowed in %q (-want +got):\n%s", from, diff)
		}
	}
}
