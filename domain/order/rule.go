package order

import "fmt"

// Rule names a business rule: what must be true of an event's amounts, beside
// its being legal in the order's state.
type Rule string

// The business rules.
const (
	RuleMoney    Rule = "money"    // an amount is not negative, in a currency of ISO 4217
	RuleCurrency Rule = "currency" // an order has one currency, that of its first total
	RulePayment  Rule = "payment"  // the whole total is paid at once
	RuleRefund   Rule = "refund"   // no more is refunded than was paid
)

// record writes an event's facts into the order, its state apart, if the
// business rules allow them.
func record(o Order, e Event) (Order, error) {
	switch e := e.(type) {
	case Created:
		o = Order{CustomerID: e.CustomerID, Currency: e.Total.Currency, TotalMinor: e.Total.Minor}
		return o, check(o, e.Type(), e.Total)
	case Amended:
		o.TotalMinor = e.Total.Minor
		return o, check(o, e.Type(), e.Total)
	case Paid:
		if err := check(o, e.Type(), e.Amount); err != nil {
			return o, err
		}
		if e.Amount.Minor != o.TotalMinor {
			return o, broken(RulePayment, e.Type(), "%s paid, but the total is %s", e.Amount, o.money(o.TotalMinor))
		}
		o.PaidMinor = e.Amount.Minor
	case Refunded:
		if err := check(o, e.Type(), e.Amount); err != nil {
			return o, err
		}
		if e.Amount.Minor > o.PaidMinor-o.RefundedMinor {
			return o, broken(RuleRefund, e.Type(), "%s refunded, but of %s paid %s were refunded before",
				e.Amount, o.money(o.PaidMinor), o.money(o.RefundedMinor))
		}
		o.RefundedMinor += e.Amount.Minor
	}
	return o, nil
}

// check applies the rules that hold for every amount. Money that was parsed
// keeps the first of them, but a literal need not.
func check(o Order, t Type, m Money) error {
	if m.Currency != o.Currency {
		return broken(RuleCurrency, t, "%s, but the order is in %s", m, o.Currency)
	}
	if _, known := minorDigits(m.Currency); !known {
		return broken(RuleMoney, t, "unknown currency %q", m.Currency)
	}
	if m.Minor < 0 {
		return broken(RuleMoney, t, "%s is negative", m)
	}
	return nil
}

func broken(r Rule, t Type, format string, args ...any) error {
	return &RuleError{Event: t, Rule: r, Detail: fmt.Sprintf(format, args...)}
}

func (o Order) money(minor int64) Money { return Money{Minor: minor, Currency: o.Currency} }
