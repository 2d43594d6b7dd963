package loyalty

import (
	"fmt"
	"math"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Totals are what was paid and refunded in one currency, in minor units. Neither is negative.
type Totals struct {
	Paid, Refunded int64
}

// Account is what was paid for one order and refunded, by currency, and who may be the customer.
type Account struct {
	Totals    map[string]Totals // by ISO 4217 code
	Customers Customers
}

// Record adds a movement that is not in the account yet, and returns by how many points that
// changes what the order has earned; the changes add up to Points, in whatever
// order movements are recorded. A movement that cannot be counted exactly leaves the account as it is; the error is an *AmountError.
func (a *Account) Record(m Movement) (delta int64, err error) {
	before, err := a.Points()
	if err != nil {
		return 0, err
	}
	was, there := a.Totals[m.Amount.Currency]
	is := was
	side := &is.Paid
	if m.Kind == Refund {
		side = &is.Refunded
	}
	if m.Amount.Minor < 0 || *side > math.MaxInt64-m.Amount.Minor {
		return 0, &AmountError{Amount: m.Amount, Reason: "the order's amounts add up to more than can be kept"}
	}
	*side += m.Amount.Minor
	if a.Totals == nil {
		a.Totals = map[string]Totals{}
	}
	a.Totals[m.Amount.Currency] = is
	after, err := a.Points()
	if err != nil {
		if a.Totals[m.Amount.Currency] = was; !there {
			delete(a.Totals, m.Amount.Currency)
		}
		return 0, err
	}
	return after - before, nil
}

// Points is how many points the order has earned: the sum, over its currencies, of the whole units
// that are paid and not refunded. A refund of which the payment is not known yet costs nothing yet.
// The error is an *AmountError.
func (a *Account) Points() (int64, error) {
	sum := int64(0)
	for currency, t := range a.Totals {
		points, err := points(currency, t)
		if err != nil {
			return 0, err
		}
		if sum > math.MaxInt64-points {
			return 0, &AmountError{Amount: order.Money{Minor: t.Paid, Currency: currency}, Reason: "the order's points add up to more than can be kept"}
		}
		sum += points
	}
	return sum, nil
}

func points(currency string, t Totals) (int64, error) {
	unit, known := order.MinorPerUnit(currency)
	if !known {
		return 0, &AmountError{Amount: order.Money{Minor: t.Paid, Currency: currency}, Reason: "the currency is not an active ISO 4217 code with a minor unit"}
	}
	return max(0, t.Paid-t.Refunded) / unit, nil
}

// AmountError says why an amount cannot be counted exactly.
type AmountError struct {
	Amount order.Money
	Reason string
}

func (e *AmountError) Error() string { return fmt.Sprintf("%s: %s", e.Amount, e.Reason) }
