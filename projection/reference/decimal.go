package reference

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// decimal is an exact number: digits × 10^exponent, where digits has neither
// leading nor trailing zeros. Zero has no digits. Equal numbers have equal
// decimals, however they were written.
type decimal struct {
	negative bool
	digits   string
	exponent string // a decimal integer without leading zeros
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
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return decimal{}, true // minus zero is zero
	}
	return decimal{negative: sign == "-", digits: trimmed, exponent: shift(power, int64(len(digits)-len(trimmed)-len(fraction)))}, true
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
	return sign + d.digits + "e" + d.exponent
}

// scaled returns d × 10^places when that is a whole number that fits into 64
// bits.
func (d decimal) scaled(places int) (int64, bool) {
	if d.isZero() {
		return 0, true
	}
	const most = 19 // digits of an int64
	exponent, err := strconv.ParseInt(shift(d.exponent, int64(places)), 10, 64)
	if err != nil || exponent < 0 || exponent+int64(len(d.digits)) > most {
		return 0, false // digits end in no zero: not whole; or beyond 10^19
	}
	n, err := strconv.ParseUint(d.digits+strings.Repeat("0", int(exponent)), 10, 64)
	lowest := d.negative && n == 1<<63
	if err != nil || n > math.MaxInt64 && !lowest {
		return 0, false
	}
	if d.negative {
		n = -n
	}
	return int64(n), true
}

// shift adds n to the integer in text, of which only the last digits change, and the run of nines or zeros before them.
func shift(text string, n int64) string {
	const low = 17
	text, negative := strings.CutPrefix(text, "-")
	text = strings.TrimLeft(strings.TrimPrefix(text, "+"), "0")
	sign := ""
	if negative {
		sign, n = "-", -n
	}
	if len(text) <= low {
		small, _ := strconv.ParseInt(text, 10, 64)
		if negative {
			return strconv.FormatInt(-(small + n), 10)
		}
		return strconv.FormatInt(small+n, 10)
	}
	head := text[:len(text)-low]
	tail, _ := strconv.ParseInt(text[len(text)-low:], 10, 64)
	tail += n
	const one = 1e17
	switch {
	case tail >= one:
		tail -= one
		kept := strings.TrimRight(head, "9")
		nines := len(head) - len(kept)
		if kept == "" {
			kept = "0"
		}
		head = kept[:len(kept)-1] + string(kept[len(kept)-1]+1) + strings.Repeat("0", nines)
	case tail < 0:
		tail += one
		kept := strings.TrimRight(head, "0")
		head = kept[:len(kept)-1] + string(kept[len(kept)-1]-1) + strings.Repeat("9", len(head)-len(kept))
	}
	return sign + strings.TrimLeft(head+fmt.Sprintf("%017d", tail), "0")
}
