package effects_test

import (
	"context"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// declares is a consumer that declares a policy, and nothing else.
type declares struct {
	effects.Effect[effects.Tx]
	policy effects.Policy
}

func (declares) Name() string             { return "test" }
func (d declares) Policy() effects.Policy { return d.policy }
func (declares) Wants(order.Type) bool    { return true }

type suppresses struct{ declares }

func (suppresses) Suppress(context.Context, effects.Tx, []*effects.Event) ([]effects.Verdict, error) {
	return nil, nil
}

type noStore struct{}

func (noStore) InTx(context.Context, func(context.Context, effects.Tx) error) error { return nil }
func (noStore) Classify(error) projection.Failure                                   { return projection.Transient }

type noRecords struct{}

func (noRecords) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return nil
}

// There is no default: a consumer that does not say what a replay may do cannot be built.
func TestConsumerNeedsAPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effect effects.Effect[effects.Tx]
		want   string
	}{
		"none":                             {declares{}, "no side-effect policy is declared"},
		"unknown":                          {declares{policy: "sometimes"}, "neither once nor suppress"},
		"suppress without saying how":      {declares{policy: effects.Suppress}, "does not say how"},
		"once":                             {declares{policy: effects.Once}, ""},
		"suppress by one that can do that": {suppresses{declares{policy: effects.Suppress}}, ""},
	} {
		_, err := effects.New(effects.Config[effects.Tx]{Group: "g", Effect: c.effect, Store: noStore{}, Older: noRecords{}})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
