package projection

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// SameEvent reports whether two envelopes say the same, whatever their key
// order, white space and envelope format. Numbers are compared exactly.
func SameEvent(a, b *Envelope) bool {
	if a.EventID != b.EventID || a.OrderID != b.OrderID || a.Version != b.Version || !a.OccurredAt.Equal(b.OccurredAt) {
		return false
	}
	nameA, schemaA := SplitType(a.Type)
	nameB, schemaB := SplitType(b.Type)
	if nameA != nameB || schemaA != schemaB {
		return false
	}
	if bytes.Equal(a.Data, b.Data) {
		return true
	}
	meaningA, errA := meaningOf(a.Data)
	meaningB, errB := meaningOf(b.Data)
	return errA == nil && errB == nil && meaningA == meaningB
}

// meaning is a hash that is equal for JSON values that say the same. The hash of an object or array is made of the hashes
// inside. Therefore the time is linear in the size, whatever the nesting: no level's text is copied into the next level.
type meaning [sha256.Size]byte

// meaningOf returns the meaning of a value; no value has a meaning of its own, the zero one.
func meaningOf(raw []byte) (meaning, error) {
	if len(raw) == 0 {
		return meaning{}, nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	return readMeaning(dec)
}

// readMeaning reads one value. Its recursion ends where the decoder refuses deeper nesting.
func readMeaning(dec *jsontext.Decoder) (meaning, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return meaning{}, fmt.Errorf("reading a value: %w", err)
	}
	switch kind := tok.Kind(); kind {
	case '{':
		return readObjectMeaning(dec)
	case '[':
		array := sha256.New()
		array.Write([]byte{'['})
		for dec.PeekKind() != ']' {
			element, err := readMeaning(dec)
			if err != nil {
				return meaning{}, err
			}
			array.Write(element[:])
		}
		_, err := dec.ReadToken()
		return meaning(array.Sum(nil)), err
	case '0':
		return textMeaning('0', canonicalNumber(tok.String())), nil
	case '"':
		return textMeaning('"', tok.String()), nil
	default:
		return textMeaning(byte(kind), ""), nil
	}
}

// readObjectMeaning reads the members of an object, behind its brace. Their order does not count.
func readObjectMeaning(dec *jsontext.Decoder) (meaning, error) {
	var members []meaning
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return meaning{}, fmt.Errorf("reading a name: %w", err)
		}
		name := textMeaning('"', tok.String())
		value, err := readMeaning(dec)
		if err != nil {
			return meaning{}, err
		}
		members = append(members, sha256.Sum256(append(name[:], value[:]...)))
	}
	slices.SortFunc(members, func(a, b meaning) int { return bytes.Compare(a[:], b[:]) })
	object := sha256.New()
	object.Write([]byte{'{'})
	for i := range members {
		object.Write(members[i][:])
	}
	_, err := dec.ReadToken()
	return meaning(object.Sum(nil)), err
}

func textMeaning(kind byte, text string) meaning {
	return sha256.Sum256(append([]byte{kind}, text...))
}

// canonicalNumber writes a JSON number as sign, digits without zeros at either end, and exponent.
func canonicalNumber(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	trimmed := strings.TrimRight(digits, "0")
	return sign + trimmed + "e" + addDecimal(exponent, int64(len(digits)-len(trimmed))-int64(len(fraction)))
}

// addDecimal adds a number below 10^17 in size to a decimal integer of any length, in time linear in that length: big.Int
// would take the square of it.
func addDecimal(text string, n int64) string {
	text, negative := strings.CutPrefix(text, "-")
	text = cmp.Or(strings.TrimLeft(strings.TrimPrefix(text, "+"), "0"), "0")
	if len(text) <= 17 {
		small, _ := strconv.ParseInt(text, 10, 64)
		if negative {
			small = -small
		}
		return strconv.FormatInt(small+n, 10)
	}
	if negative { // the longer number keeps its sign
		n = -n
	}
	sum, carry := []byte(text), n
	for i := len(sum) - 1; i >= 0 && carry != 0; i-- {
		carry += int64(sum[i] - '0')
		digit := (carry%10 + 10) % 10
		sum[i], carry = byte('0'+digit), (carry-digit)/10
	}
	text = strings.TrimLeft(string(sum), "0")
	if carry > 0 {
		text = strconv.FormatInt(carry, 10) + string(sum)
	}
	if negative {
		return "-" + text
	}
	return text
}
