package reference

import (
	"math/big"
	"regexp"
	"strings"
)

// decimal is an exact number: digits × 10^exponent, where digits has neither
// leading nor trailing zeros. Zero has no digits. Equal numbers have equal
// decimals, however they were written.
type decimal struct {
	negative bool
	digits   string
	exponent *big.Int
}

var jsonNumber = regexp.MustCompile(`^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$`)

// parseDecimal reads a number in JSON's grammar. It never expands an
// exponent, so a short text cannot ask for a long number.
func parseDecimal(text string) (decimal, bool) {
	part := jsonNumber.FindStringSubmatch(text)
	if part == nil {
		return decimal{}, false
	}
	sign, whole, fraction, power := part[1], part[2], part[3], part[4]
	exponent := new(big.Int)
	if power != "" {
		exponent.SetString(strings.TrimPrefix(power, "+"), 10)
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return decimal{exponent: new(big.Int)}, true // minus zero is zero
	}
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(trimmed))))
	return decimal{negative: sign == "-", digits: trimmed, exponent: exponent}, true
}

func (d decimal) isZero() bool { return d.digits == "" }

// String is the same for equal numbers.
func (d decimal) String() string {
	if d.isZero() {
		return "0"
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + d.digits + "e" + d.exponent.String()
}

// scaled returns d × 10^places when that is a whole number that fits into 64
// bits.
func (d decimal) scaled(places int) (int64, bool) {
	if d.isZero() {
		return 0, true
	}
	exponent := new(big.Int).Add(d.exponent, big.NewInt(int64(places)))
	if exponent.Sign() < 0 || !exponent.IsInt64() || exponent.Int64() > 19 {
		return 0, false // digits end in no zero: not whole; or beyond 10^19
	}
	n, _ := new(big.Int).SetString(d.digits, 10)
	n.Mul(n, new(big.Int).Exp(big.NewInt(10), exponent, nil))
	if d.negative {
		n.Neg(n)
	}
	return n.Int64(), n.IsInt64()
}
