package loyalty_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/loyalty"
	"github.com/orderprojector/orderprojector/domain/order"
)

func money(minor int64, currency string) order.Money {
	return order.Money{Minor: minor, Currency: currency}
}

func paid(id string, minor int64, currency string) loyalty.Movement {
	return loyalty.Movement{Kind: loyalty.Payment, ID: id, Amount: money(minor, currency)}
}

func refunded(id string, minor int64, currency string) loyalty.Movement {
	return loyalty.Movement{Kind: loyalty.Refund, ID: id, Amount: money(minor, currency)}
}

func TestPoints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		moves  []loyalty.Movement
		deltas []int64
	}{
		"the rest of a unit earns nothing":          {[]loyalty.Movement{paid("p", 1999, "EUR")}, []int64{19}},
		"a currency without minor units":            {[]loyalty.Movement{paid("p", 1999, "JPY")}, []int64{1999}},
		"three decimals":                            {[]loyalty.Movement{paid("p", 1999, "KWD")}, []int64{1}},
		"four decimals":                             {[]loyalty.Movement{paid("p", 19999, "CLF")}, []int64{1}},
		"a refund takes back what it breaks into":   {[]loyalty.Movement{paid("p", 2000, "EUR"), refunded("r", 1, "EUR")}, []int64{20, -1}},
		"two refunds of parts of a unit":            {[]loyalty.Movement{paid("p", 1999, "EUR"), refunded("a", 50, "EUR"), refunded("b", 50, "EUR")}, []int64{19, 0, -1}},
		"all of it":                                 {[]loyalty.Movement{paid("p", 1999, "EUR"), refunded("r", 1999, "EUR")}, []int64{19, -19}},
		"the refund comes first":                    {[]loyalty.Movement{refunded("r", 500, "EUR"), paid("p", 1999, "EUR")}, []int64{0, 14}},
		"more refunded than paid":                   {[]loyalty.Movement{paid("p", 100, "EUR"), refunded("r", 500, "EUR")}, []int64{1, -1}},
		"currencies do not mix":                     {[]loyalty.Movement{paid("p", 199, "EUR"), paid("q", 1, "JPY"), refunded("r", 1, "JPY")}, []int64{1, 1, -1}},
		"nothing paid earns nothing":                {[]loyalty.Movement{paid("p", 0, "EUR")}, []int64{0}},
		"the largest amount is counted to the unit": {[]loyalty.Movement{paid("p", math.MaxInt64, "EUR")}, []int64{math.MaxInt64 / 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a loyalty.Account
			for i, m := range c.moves {
				delta, err := a.Record(m)
				if err != nil || delta != c.deltas[i] {
					t.Errorf("movement %d: %d points, %v; want %d", i, delta, err, c.deltas[i])
				}
			}
		})
	}
}

func TestAmountsThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	var a loyalty.Account
	record := func(m loyalty.Movement) error { _, err := a.Record(m); return err }
	if err := record(paid("a", math.MaxInt64, "JPY")); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]loyalty.Movement{
		"amounts overflow":    paid("b", 1, "JPY"),
		"points overflow":     paid("c", 100, "EUR"),
		"an unknown currency": paid("d", 1, "XXX"),
		"a negative amount":   paid("e", -1, "USD"),
	} {
		if err := record(m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if points, err := a.Points(); points != math.MaxInt64 || err != nil {
		t.Errorf("afterwards there are %d points, %v", points, err)
	}
}

// Whatever the order of arrival, the changes add up to the same points, and the owner is the same.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type arrival struct {
			loyalty.Movement
			customer string
		}
		moves := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) arrival {
			return arrival{loyalty.Movement{
				Kind:   rapid.SampledFrom([]loyalty.Kind{loyalty.Payment, loyalty.Refund}).Draw(t, "kind"),
				ID:     rapid.StringMatching(`[a-d]{1,3}`).Draw(t, "id"),
				Amount: money(rapid.Int64Range(0, 10_000).Draw(t, "minor"), rapid.SampledFrom([]string{"EUR", "JPY", "KWD"}).Draw(t, "currency")),
			}, rapid.SampledFrom([]string{"", "c-1", "c-2"}).Draw(t, "customer")}
		}), 0, 8, func(a arrival) string { return a.Source() }).Draw(t, "moves")
		run := func(moves []arrival) (int64, string) {
			var a loyalty.Account
			sum := int64(0)
			for _, m := range moves {
				delta, err := a.Record(m.Movement)
				if err != nil {
					t.Fatal(err)
				}
				a.Customers.Note(m.Movement, m.customer)
				sum += delta
			}
			if points, err := a.Points(); points != sum || err != nil {
				t.Fatalf("the changes add up to %d, the points are %d, %v", sum, points, err)
			}
			return sum, a.Customers.Owner()
		}
		points, owner := run(moves)
		otherPoints, otherOwner := run(rapid.Permutation(moves).Draw(t, "other order"))
		if points != otherPoints || owner != otherOwner {
			t.Fatalf("%d points of %q, and in another order %d of %q", points, owner, otherPoints, otherOwner)
		}
	})
}

func TestOwner(t *testing.T) {
	t.Parallel()
	var c loyalty.Customers
	is := func(want string) {
		t.Helper()
		if got := c.Owner(); got != want {
			t.Errorf("the owner is %q, want %q", got, want)
		}
	}
	is("")
	c.Note(refunded("r", 1, "EUR"), "c-refunded")
	is("c-refunded")
	c.Ordered = "c-ordered"
	is("c-ordered")
	c.Note(paid("p2", 1, "EUR"), "c-later")
	c.Note(paid("p1", 1, "EUR"), "c-paid")
	c.Note(paid("p3", 1, "EUR"), "c-last")
	c.Note(paid("p0", 1, "EUR"), "")
	is("c-paid")
}
