package order

import (
	"fmt"
	"strconv"
	"strings"
)

// Money is an exact amount in one currency. Values can be compared with ==.
type Money struct {
	Minor    int64  // in minor units, such as cents; not negative
	Currency string // ISO 4217 code
}

// ParseMoney reads a decimal amount, written as JSON writes numbers ("19.99",
// "1.999e1"), in a currency named by its ISO 4217 code in upper case. The
// amount must be a whole, non-negative number of the currency's minor units;
// nothing is ever rounded. The cost grows with the length of the text, never
// with the size of the number. The error is a *MoneyError.
func ParseMoney(amount, currency string) (Money, error) {
	digits, known := minorDigits(currency)
	if !known {
		return Money{}, refuse(amount, currency, "the currency is not an active ISO 4217 code with a minor unit")
	}
	number, ok := scanDecimal(amount)
	if !ok {
		return Money{}, refuse(amount, currency, `the amount is not a decimal number such as "19.99"`)
	}
	minor, reason := number.scaled(digits)
	if reason != "" {
		return Money{}, refuse(amount, currency, reason)
	}
	return Money{Minor: minor, Currency: currency}, nil
}

// Amount writes the amount without its currency, as ParseMoney reads it. The
// amount of an unknown currency is written in minor units.
func (m Money) Amount() string {
	sign, magnitude := "", uint64(m.Minor)
	if m.Minor < 0 {
		sign, magnitude = "-", -magnitude
	}
	digits, _ := minorDigits(m.Currency)
	text := strconv.FormatUint(magnitude, 10)
	if digits == 0 {
		return sign + text
	}
	if missing := digits + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	point := len(text) - digits
	return sign + text[:point] + "." + text[point:]
}

// String returns the amount and its currency, such as "19.99 EUR".
func (m Money) String() string { return m.Amount() + " " + m.Currency }

// refuse makes a *MoneyError that is small, whatever was given.
func refuse(amount, currency, reason string) error {
	return &MoneyError{Amount: shorten(amount), Currency: shorten(currency), Reason: reason}
}

func shorten(text string) string {
	const limit = 40
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:limit], ""), len(text))
}
