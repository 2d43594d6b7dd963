package order

import (
	"math"
	"strings"
)

// decimal is a number as it was written: whole.fraction × 10^exponent.
type decimal struct {
	negative        bool
	whole, fraction string // digits
	exponent        int64
}

// scanDecimal reads a number by the grammar of JSON, with nothing around it.
func scanDecimal(text string) (d decimal, ok bool) {
	text, d.negative = strings.CutPrefix(text, "-")
	d.whole, text = cutDigits(text)
	if d.whole == "" || d.whole[0] == '0' && d.whole != "0" {
		return decimal{}, false
	}
	if fraction, found := strings.CutPrefix(text, "."); found {
		d.fraction, text = cutDigits(fraction)
		if d.fraction == "" {
			return decimal{}, false
		}
	}
	if text == "" {
		return d, true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return decimal{}, false
	}
	d.exponent, ok = scanExponent(text[1:])
	return d, ok
}

func scanExponent(text string) (exponent int64, ok bool) {
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	digits, rest := cutDigits(digits)
	// Beyond this no text has digits enough to bring the number back into
	// range, so that the exact exponent no longer matters.
	const enough = 1 << 50
	for _, c := range []byte(digits) {
		if exponent < enough {
			exponent = exponent*10 + int64(c-'0')
		}
	}
	if negative {
		exponent = -exponent
	}
	return exponent, digits != "" && rest == ""
}

func cutDigits(text string) (digits, rest string) {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}

// scaled returns the number times 10^digits, or the reason why that is not an
// amount of minor units.
func (d decimal) scaled(digits int) (minor int64, reason string) {
	// Without the zeros at both ends, the number's size is known before
	// anything is calculated.
	whole := strings.TrimLeft(d.whole, "0")
	fraction := strings.TrimRight(d.fraction, "0")
	zeros := d.exponent + int64(digits-len(fraction)) // to append
	if fraction == "" {
		significant := strings.TrimRight(whole, "0")
		zeros += int64(len(whole) - len(significant))
		whole = significant
	}
	if whole == "" {
		fraction = strings.TrimLeft(fraction, "0")
	}

	const maxDigits = 19 // of an int64, and they fit into a uint64
	switch {
	case whole == "" && fraction == "":
		return 0, ""
	case d.negative:
		return 0, "it is negative"
	case zeros < 0:
		return 0, "it is not a whole number of the currency's minor units"
	case int64(len(whole)+len(fraction))+zeros > maxDigits:
		return 0, tooLarge
	}
	var n uint64
	for _, c := range []byte(whole) {
		n = n*10 + uint64(c-'0')
	}
	for _, c := range []byte(fraction) {
		n = n*10 + uint64(c-'0')
	}
	for range zeros {
		n *= 10
	}
	if n > math.MaxInt64 {
		return 0, tooLarge
	}
	return int64(n), ""
}

const tooLarge = "its minor units do not fit into 64 bits"
