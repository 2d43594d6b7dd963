package order_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/order"
)

func eur(minor int64) order.Money { return order.Money{Minor: minor, Currency: "EUR"} }

// orderIn is an order of 10 EUR in that state, paid wherever it can be.
func orderIn(s order.State) order.Order {
	o := order.Order{State: s, CustomerID: "c-1", Currency: "EUR", TotalMinor: 1000, PaidMinor: 1000}
	switch s {
	case order.None:
		return order.Order{}
	case order.StatePending:
		o.PaidMinor = 0
	case order.StateRefunded:
		o.RefundedMinor = 1000
	}
	return o
}

func TestEveryEventInEveryState(t *testing.T) {
	const grid = `
	           created  amended  paid  packed  shipped  delivered  cancelled  returned  refunded  refunded-in-part
	(none)     pending  -        -     -       -        -          -          -         -         -
	pending    -        pending  paid  -       -        -          cancelled  -         -         -
	paid       -        -        -     packed  shipped  -          cancelled  -         refunded  paid
	packed     -        -        -     -       shipped  -          cancelled  -         refunded  packed
	shipped    -        -        -     -       -        delivered  -          returned  refunded  shipped
	delivered  -        -        -     -       -        -          -          returned  refunded  delivered
	cancelled  -        -        -     -       -        -          -          -         refunded  cancelled
	returned   -        -        -     -       -        -          -          -         refunded  returned
	refunded   -        -        -     -       -        -          -          -         -         -
	`
	events := map[string]order.Event{
		"created":          order.Created{CustomerID: "c-1", Total: eur(1000)},
		"amended":          order.Amended{Total: eur(900)},
		"paid":             order.Paid{PaymentID: "p-1", Amount: eur(1000)},
		"packed":           order.Packed{},
		"shipped":          order.Shipped{Carrier: "dhl", TrackingNumber: "t-1"},
		"delivered":        order.Delivered{},
		"cancelled":        order.Cancelled{Reason: "changed my mind"},
		"returned":         order.Returned{Reason: "too small"},
		"refunded":         order.Refunded{RefundID: "r-1", Amount: eur(1000)},
		"refunded-in-part": order.Refunded{RefundID: "r-1", Amount: eur(999)},
	}
	var states []order.State
	var types []order.Type
	lines := strings.Split(strings.TrimSpace(grid), "\n")
	columns := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		from := order.State(cells[0])
		if from == "(none)" {
			from = order.None
		}
		states = append(states, from)
		for i, want := range cells[1:] {
			e := events[columns[i]]
			if !slices.Contains(types, e.Type()) {
				types = append(types, e.Type())
			}
			before := orderIn(from)
			after, err := order.Apply(before, e)
			if want != "-" {
				if err != nil || after.State != order.State(want) {
					t.Errorf("%s in %q: got state %q and error %v, want state %q", columns[i], from, after.State, err, want)
				}
				continue
			}
			var illegal *order.TransitionError
			switch {
			case !errors.As(err, &illegal) || !errors.Is(err, order.ErrIllegal):
				t.Errorf("%s in %q: got error %v, want a *TransitionError", columns[i], from, err)
			case *illegal != order.TransitionError{From: from, Event: e.Type()}:
				t.Errorf("%s in %q: the error tells of %+v", columns[i], from, *illegal)
			case after != before:
				t.Errorf("%s in %q: refused, but the order became %+v", columns[i], from, after)
			}
		}
	}
	if diff := cmp.Diff(append([]order.State{order.None}, order.States()...), states); diff != "" {
		t.Errorf("states that the grid covers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(order.Types(), types); diff != "" {
		t.Errorf("types that the grid covers (-want +got):\n%s", diff)
	}
}

func TestAmounts(t *testing.T) {
	const most = math.MaxInt64
	pending := orderIn(order.StatePending)
	paid := orderIn(order.StatePaid)
	with := func(o order.Order, change func(*order.Order)) order.Order {
		change(&o)
		return o
	}
	refunded := func(s order.State, minor int64) order.Order {
		return with(paid, func(o *order.Order) { o.State, o.RefundedMinor = s, minor })
	}
	huge := func(s order.State, paid, refunded int64) order.Order {
		return order.Order{
			State: s, CustomerID: "c-1", Currency: "EUR",
			TotalMinor: most, PaidMinor: paid, RefundedMinor: refunded,
		}
	}
	usd := order.Money{Minor: 1000, Currency: "USD"}

	for name, test := range map[string]struct {
		order  order.Order
		event  order.Event
		want   order.Order
		broken order.Rule
	}{
		"created": {event: order.Created{CustomerID: "c-1", Total: eur(1000)}, want: pending},
		"created for nothing": {
			event: order.Created{CustomerID: "c-1", Total: eur(0)},
			want:  with(pending, func(o *order.Order) { o.TotalMinor = 0 }),
		},
		"created for the most": {event: order.Created{CustomerID: "c-1", Total: eur(most)}, want: huge(order.StatePending, 0, 0)},
		"created for less than nothing": {
			event: order.Created{CustomerID: "c-1", Total: eur(-1)}, broken: order.RuleMoney,
		},
		"created in no currency": {event: order.Created{CustomerID: "c-1"}, broken: order.RuleMoney},
		"created in gold": {
			event:  order.Created{CustomerID: "c-1", Total: order.Money{Minor: 1, Currency: "XAU"}},
			broken: order.RuleMoney,
		},

		"amended": {
			order: pending, event: order.Amended{Total: eur(1)},
			want: with(pending, func(o *order.Order) { o.TotalMinor = 1 }),
		},
		"amended to less than nothing": {order: pending, event: order.Amended{Total: eur(-1)}, broken: order.RuleMoney},
		"amended in another currency":  {order: pending, event: order.Amended{Total: usd}, broken: order.RuleCurrency},
		"amended in a currency of lower case": {
			order: pending, event: order.Amended{Total: order.Money{Minor: 1, Currency: "eur"}}, broken: order.RuleCurrency,
		},

		"paid":                     {order: pending, event: order.Paid{Amount: eur(1000)}, want: paid},
		"paid by another":          {order: pending, event: order.Paid{Amount: eur(1000), CustomerID: "c-2"}, want: paid},
		"paid the most":            {order: huge(order.StatePending, 0, 0), event: order.Paid{Amount: eur(most)}, want: huge(order.StatePaid, most, 0)},
		"paid too little":          {order: pending, event: order.Paid{Amount: eur(999)}, broken: order.RulePayment},
		"paid too much":            {order: pending, event: order.Paid{Amount: eur(1001)}, broken: order.RulePayment},
		"paid nothing":             {order: pending, event: order.Paid{Amount: eur(0)}, broken: order.RulePayment},
		"paid less than nothing":   {order: pending, event: order.Paid{Amount: eur(-1000)}, broken: order.RuleMoney},
		"paid in another currency": {order: pending, event: order.Paid{Amount: usd}, broken: order.RuleCurrency},

		"refunded in full":            {order: paid, event: order.Refunded{Amount: eur(1000)}, want: refunded(order.StateRefunded, 1000)},
		"refunded in part":            {order: paid, event: order.Refunded{Amount: eur(999)}, want: refunded(order.StatePaid, 999)},
		"refunded nothing":            {order: paid, event: order.Refunded{Amount: eur(0)}, want: paid},
		"refunded the rest":           {order: refunded(order.StateReturned, 999), event: order.Refunded{Amount: eur(1)}, want: refunded(order.StateRefunded, 1000)},
		"refunded too much":           {order: paid, event: order.Refunded{Amount: eur(1001)}, broken: order.RuleRefund},
		"refunded more than the rest": {order: refunded(order.StateReturned, 999), event: order.Refunded{Amount: eur(2)}, broken: order.RuleRefund},
		"refunded what was never paid": {
			order: with(pending, func(o *order.Order) { o.State = order.StateCancelled }),
			event: order.Refunded{Amount: eur(1)}, broken: order.RuleRefund,
		},
		"refunded the most":            {order: huge(order.StatePaid, most, 0), event: order.Refunded{Amount: eur(most)}, want: huge(order.StateRefunded, most, most)},
		"refunded the most but one":    {order: huge(order.StatePaid, most, 1), event: order.Refunded{Amount: eur(most - 1)}, want: huge(order.StateRefunded, most, most)},
		"refunded past the most":       {order: huge(order.StatePaid, most, 1), event: order.Refunded{Amount: eur(most)}, broken: order.RuleRefund},
		"refunded less than nothing":   {order: paid, event: order.Refunded{Amount: eur(-1)}, broken: order.RuleMoney},
		"refunded in another currency": {order: paid, event: order.Refunded{Amount: usd}, broken: order.RuleCurrency},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := order.Apply(test.order, test.event)
			if test.broken == "" {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
				return
			}
			var rule *order.RuleError
			if !errors.As(err, &rule) || !errors.Is(err, order.ErrIllegal) {
				t.Fatalf("got error %v, want a *RuleError", err)
			}
			if rule.Rule != test.broken || rule.Event != test.event.Type() {
				t.Errorf("got %s by %s, want %s by %s", rule.Rule, rule.Event, test.broken, test.event.Type())
			}
			if got != test.order {
				t.Errorf("refused, but the order became %+v", got)
			}
		})
	}
}

func TestUnknownStoredState(t *testing.T) {
	before := orderIn("archived")
	after, err := order.Apply(before, order.Shipped{})
	var unknown *order.UnknownStateError
	if !errors.As(err, &unknown) || unknown.State != "archived" {
		t.Fatalf("got error %v, want an *UnknownStateError", err)
	}
	if errors.Is(err, order.ErrIllegal) {
		t.Error("the event is blamed for the state of the order")
	}
	if after != before {
		t.Errorf("the order became %+v", after)
	}
}

type foreign struct{}

func (foreign) Type() order.Type { return order.TypePaid }

func TestForeignEvents(t *testing.T) {
	for name, e := range map[string]order.Event{
		"<nil>":              nil,
		"*order.Paid":        (*order.Paid)(nil),
		"order_test.foreign": foreign{},
	} {
		_, err := order.Apply(orderIn(order.StatePending), e)
		var illegal *order.TransitionError
		if !errors.As(err, &illegal) || illegal.Event != order.Type(name) {
			t.Errorf("%s: got error %v, want a *TransitionError that names it", name, err)
		}
	}
}

func TestErrorsTellWhatToLookAt(t *testing.T) {
	for want, given := range map[string]struct {
		from order.State
		e    order.Event
	}{
		"OrderPaid is illegal before OrderCreated: the order does not exist yet": {order.None, order.Paid{}},
		"OrderPacked is illegal in state delivered (legal there: OrderReturned, OrderRefunded)": {
			order.StateDelivered, order.Packed{},
		},
		"OrderPacked is illegal in state refunded, which is final": {order.StateRefunded, order.Packed{}},
		"OrderPaid breaks the payment rule: 9.99 EUR paid, but the total is 10.00 EUR": {
			order.StatePending, order.Paid{Amount: eur(999)},
		},
		"OrderRefunded breaks the refund rule: 10.01 EUR refunded, but of 10.00 EUR paid 0.00 EUR were refunded before": {
			order.StatePaid, order.Refunded{Amount: eur(1001)},
		},
		"OrderAmended breaks the currency rule: 1000 JPY, but the order is in EUR": {
			order.StatePending, order.Amended{Total: order.Money{Minor: 1000, Currency: "JPY"}},
		},
		`unknown order state "archived": stored by a newer release, or changed by hand`: {"archived", order.Packed{}},
	} {
		if _, err := order.Apply(orderIn(given.from), given.e); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// A refusal leaves nothing behind: the order takes the right event afterwards
// as if the wrong one had never been there.
func TestRefusalLeavesNothingBehind(t *testing.T) {
	o := orderIn(order.StatePending)
	for _, refused := range []order.Event{order.Delivered{}, order.Paid{Amount: eur(1)}, nil} {
		if _, err := order.Apply(o, refused); err == nil {
			t.Fatalf("%T was applied", refused)
		}
		got, err := order.Apply(o, order.Paid{Amount: eur(1000)})
		if err != nil {
			t.Fatal(err)
		}
		if got != orderIn(order.StatePaid) {
			t.Errorf("got %+v", got)
		}
	}
}

func anyMoney() *rapid.Generator[order.Money] {
	return rapid.Custom(func(t *rapid.T) order.Money {
		return order.Money{
			Minor:    rapid.OneOf(rapid.Int64Range(-1, 3), rapid.Int64()).Draw(t, "minor"),
			Currency: rapid.SampledFrom([]string{"EUR", "EUR", "EUR", "JPY", ""}).Draw(t, "currency"),
		}
	})
}

func anyEvent() *rapid.Generator[order.Event] {
	return rapid.Custom(func(t *rapid.T) order.Event {
		m := anyMoney().Draw(t, "money")
		return rapid.SampledFrom([]order.Event{
			nil, foreign{},
			order.Created{CustomerID: "c-1", Total: m}, order.Amended{Total: m}, order.Paid{Amount: m}, order.Packed{},
			order.Shipped{}, order.Delivered{}, order.Cancelled{}, order.Returned{}, order.Refunded{Amount: m},
		}).Draw(t, "event")
	})
}

// Apply is total: an order that no Apply made gets an answer too.
func TestApplyIsTotal(t *testing.T) {
	states := append(order.States(), order.None, "archived")
	rapid.Check(t, func(t *rapid.T) {
		before := order.Order{
			State:         rapid.SampledFrom(states).Draw(t, "state"),
			Currency:      rapid.SampledFrom([]string{"EUR", "JPY", ""}).Draw(t, "currency"),
			TotalMinor:    rapid.Int64().Draw(t, "total"),
			PaidMinor:     rapid.Int64().Draw(t, "paid"),
			RefundedMinor: rapid.Int64().Draw(t, "refunded"),
		}
		after, err := order.Apply(before, anyEvent().Draw(t, "event"))
		var transition *order.TransitionError
		var rule *order.RuleError
		var unknown *order.UnknownStateError
		switch {
		case err == nil:
			return
		case after != before:
			t.Fatalf("refused, but the order became %+v", after)
		case errors.As(err, &unknown) != (before.State == "archived"):
			t.Fatalf("state %q: %v", before.State, err)
		case errors.Is(err, order.ErrIllegal) != (errors.As(err, &transition) || errors.As(err, &rule)):
			t.Fatalf("error of an unknown kind: %v", err)
		}
	})
}

// What Order promises of its amounts holds on every way through the states.
func TestOrdersStaySound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o order.Order
		t.Repeat(map[string]func(*rapid.T){
			"any event": func(t *rapid.T) { o, _ = order.Apply(o, anyEvent().Draw(t, "event")) },
			"fitting event": func(t *rapid.T) {
				total := order.Money{Minor: rapid.Int64Range(0, math.MaxInt64).Draw(t, "total"), Currency: "EUR"}
				part := order.Money{Currency: o.Currency}
				part.Minor = rapid.Int64Range(0, o.PaidMinor-o.RefundedMinor).Draw(t, "part")
				o, _ = order.Apply(o, rapid.SampledFrom([]order.Event{
					order.Created{CustomerID: "c-1", Total: total}, order.Amended{Total: total},
					order.Paid{Amount: order.Money{Minor: o.TotalMinor, Currency: o.Currency}},
					order.Packed{}, order.Shipped{}, order.Delivered{}, order.Cancelled{}, order.Returned{},
					order.Refunded{Amount: part},
				}).Draw(t, "event"))
			},
			"": func(t *rapid.T) {
				switch {
				case o.State == order.None:
					if o != (order.Order{}) {
						t.Fatalf("an order before its creation: %+v", o)
					}
				case o.TotalMinor < 0,
					o.PaidMinor != 0 && o.PaidMinor != o.TotalMinor,
					o.RefundedMinor < 0 || o.RefundedMinor > o.PaidMinor,
					o.State == order.StatePending && o.PaidMinor != 0,
					o.State == order.StateRefunded && o.RefundedMinor != o.PaidMinor,
					o.Currency != "EUR" && o.Currency != "JPY":
					t.Fatalf("unsound: %+v", o)
				}
			},
		})
	})
}

// life leads through most states and ends in refunded.
var life = []order.Event{
	order.Created{CustomerID: "c-1", Total: eur(2000)}, order.Amended{Total: eur(1000)},
	order.Paid{PaymentID: "p-1", Amount: eur(1000)}, order.Packed{}, order.Shipped{}, order.Delivered{},
	order.Refunded{RefundID: "r-1", Amount: eur(1)}, order.Returned{}, order.Refunded{RefundID: "r-2", Amount: eur(999)},
}

func TestApplyFromManyGoroutines(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				var o order.Order
				for _, e := range life {
					var err error
					if o, err = order.Apply(o, e); err != nil {
						t.Error(err)
						return
					}
				}
				if o != orderIn(order.StateRefunded) {
					t.Errorf("got %+v", o)
				}
			}
		})
	}
	group.Wait()
}

func TestApplyAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var o order.Order
		for _, e := range life {
			o, _ = order.Apply(o, e)
		}
	}); n != 0 {
		t.Errorf("%v allocations for the life of an order", n)
	}
}

func BenchmarkApply(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var o order.Order
		for _, e := range life {
			o, _ = order.Apply(o, e)
		}
		if o.State != order.StateRefunded {
			b.Fatal(o)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(life)), "ns/event")
}
