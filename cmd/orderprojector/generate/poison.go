package generate

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/orderprojector/orderprojector/projection"
)

// poison is a record that no decoder should accept.
type poison struct {
	name   string
	key    []byte // nil is a null key
	value  []byte
	claims bool // order and version can be read: it holds its order back until the right event comes

	headers []projection.Header // of a CloudEvent
}

// envelope is an event's members as JSON literals; an empty one is left out.
type envelope struct {
	eventID, orderID, typ, version, at, data string
}

func envelopeOf(e *event) envelope {
	data := appendData(nil, e, style{}, ",", ":")
	return envelope{
		eventID: quote(string(e.id[:])), orderID: quote(e.orderID), typ: quote(kindNames[e.kind] + ".v1"),
		version: strconv.FormatInt(e.version, 10), at: quote(e.at.Format(time.RFC3339Nano)), data: string(data),
	}
}

func quote(text string) string { return `"` + text + `"` }

func (v envelope) bytes() []byte {
	var members []string
	for _, m := range [][2]string{
		{"event_id", v.eventID}, {"order_id", v.orderID}, {"type", v.typ}, {"version", v.version},
		{"occurred_at", v.at}, {"data", v.data},
	} {
		if m[1] != "" {
			members = append(members, quote(m[0])+":"+m[1])
		}
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// poison returns a bad record about an event that is about to come.
func (p *planner) poison(pl *plan, e *event) poison {
	rng := p.fault
	if rng.IntN(400) == 0 {
		return megabyte(pl, e)
	}
	if rng.IntN(100) == 0 {
		return poison{name: "100,000 nested arrays", key: pl.key, value: bytes.Repeat([]byte{'['}, 100_000)}
	}
	switch rng.IntN(4) {
	case 0:
		made := wholeValues[rng.IntN(len(wholeValues))]
		return poison{name: made.name, key: pl.key, value: made.make(envelopeOf(e).bytes())}
	case 1:
		made := wrongKeys[rng.IntN(len(wrongKeys))]
		return poison{name: made.name, key: made.make(pl.key), value: made.value(envelopeOf(e).bytes())}
	default:
		made := badMembers[rng.IntN(len(badMembers))]
		v := envelopeOf(e)
		made.make(&v)
		return poison{name: made.name, key: pl.key, value: v.bytes(), claims: made.claims}
	}
}

// megabyte is a record near the usual limit of a broker: once garbage, once an
// event whose reason is a million bytes long.
func megabyte(pl *plan, e *event) poison {
	long := strings.Repeat("x", 1_000_000)
	if e.version%2 == 0 {
		return poison{name: "1 MB of garbage", key: pl.key, value: []byte(long)}
	}
	v := envelopeOf(e)
	v.typ, v.data = quote("OrderCancelled.v1"), `{"reason":`+quote(long)+`}`
	return poison{name: "1 MB reason", key: pl.key, value: v.bytes(), claims: true}
}

// wholeValues are values that cannot be read at all. They get a good value to spoil.
var wholeValues = []struct {
	name string
	make func(good []byte) []byte
}{
	{"empty value", func([]byte) []byte { return []byte{} }},
	{"empty object", func([]byte) []byte { return []byte(`{}`) }},
	{"empty array", func([]byte) []byte { return []byte(`[]`) }},
	{"JSON null", func([]byte) []byte { return []byte(`null`) }},
	{"JSON string", func(good []byte) []byte { return strconv.AppendQuote(nil, string(good[:10])) }},
	{"JSON number", func([]byte) []byte { return []byte(`12345678901234567890`) }},
	{"event in an array", func(good []byte) []byte { return append(append([]byte{'['}, good...), ']') }},
	{"white space", func([]byte) []byte { return []byte(" \n\t ") }},
	{"cut off", func(good []byte) []byte { return good[:len(good)/2] }},
	{"last byte missing", func(good []byte) []byte { return good[:len(good)-1] }},
	{"trailing comma", func(good []byte) []byte { return append(good[:len(good)-1], ",}"...) }},
	{"trailing data", func(good []byte) []byte { return append(good, "{}"...) }},
	{"trailing NUL", func(good []byte) []byte { return append(good, 0) }},
	{"byte order mark", func(good []byte) []byte { return append([]byte("\xEF\xBB\xBF"), good...) }},
	{"UTF-16", func(good []byte) []byte {
		var wide []byte
		for _, unit := range utf16.Encode([]rune(string(good))) {
			wide = append(wide, byte(unit), byte(unit>>8))
		}
		return wide
	}},
	{"invalid UTF-8", func(good []byte) []byte { return bytes.Replace(good, []byte("event_id"), []byte("event\xFFid"), 1) }},
	{"half a surrogate pair", func(good []byte) []byte { return addMember(good, `"note":"\ud83d"`) }},
	{"surrogates in UTF-8", func(good []byte) []byte { return addMember(good, "\"note\":\"\xED\xA0\x80\"") }},
	{"control character", func(good []byte) []byte { return addMember(good, "\"note\":\"\x01\"") }},
	{"duplicate name", func(good []byte) []byte { return addMember(good, `"version":1`) }},
	{"duplicate escaped name", func(good []byte) []byte { return addMember(good, `"versio\u006e":1`) }},
	{"duplicate nested name", func(good []byte) []byte { return addMember(good, `"note":[{"a":1,"b":2,"a":1}]`) }},
	{"10,001 levels", func(good []byte) []byte {
		return addMember(good, `"note":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000))
	}},
	{"NaN", func(good []byte) []byte { return addMember(good, `"note":NaN`) }},
	{"leading zero", func(good []byte) []byte { return addMember(good, `"note":01`) }},
	{"single quotes", func(good []byte) []byte { return bytes.ReplaceAll(good, []byte{'"'}, []byte{'\''}) }},
	{"comment", func(good []byte) []byte { return append([]byte("// event\n"), good...) }},
	{"schema registry framing", func(good []byte) []byte { return append([]byte{0, 0, 0, 0, 42}, good...) }},
	{"gzip", func([]byte) []byte {
		return []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xabV*\xceM\xcc\xc9\x01\x00")
	}},
	{"base64", func(good []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(good)) }},
}

// addMember adds a member in front of an object's others.
func addMember(good []byte, member string) []byte {
	return append([]byte("{"+member+","), good[1:]...)
}

// wrongKeys are keys that do not fit the body, or bodies without any.
var wrongKeys = []struct {
	name  string
	make  func(key []byte) []byte
	value func(good []byte) []byte
}{
	{"another order's key", func(key []byte) []byte { return append([]byte("x"), key...) }, same},
	{"key in capitals", bytes.ToUpper, same},
	{"key with a newline", func(key []byte) []byte { return append(bytes.Clone(key), '\n') }, same},
	{"key with NUL", func(key []byte) []byte { return append(bytes.Clone(key), 0) }, same},
	{"empty key", func([]byte) []byte { return []byte{} }, same},
	{"6 kB key", func(key []byte) []byte { return bytes.Repeat(key, 6000/len(key)+1) }, same},
	{"key of invalid UTF-8", func(key []byte) []byte { return append(bytes.Clone(key), 0xFF) }, same},
	{"null key and garbage", null, func(good []byte) []byte { return good[3:] }},
	{"null key and no order", null, func([]byte) []byte { return []byte(`{"version":1}`) }},
}

func same(good []byte) []byte { return good }
func null([]byte) []byte      { return nil }

// badMembers are JSON objects that break the event contract.
var badMembers = []struct {
	name   string
	claims bool
	make   func(*envelope)
}{
	{"version 0", false, func(v *envelope) { v.version = `0` }},
	{"version -1", false, func(v *envelope) { v.version = `-1` }},
	{"version 3.0", false, func(v *envelope) { v.version = `3.0` }},
	{"version 1e0", false, func(v *envelope) { v.version = `1e0` }},
	{"version in quotes", false, func(v *envelope) { v.version = quote(v.version) }},
	{"version 2^63", false, func(v *envelope) { v.version = `9223372036854775808` }},
	{"version null", false, func(v *envelope) { v.version = `null` }},
	{"version missing", false, func(v *envelope) { v.version = `` }},
	{"version true", false, func(v *envelope) { v.version = `true` }},

	{"order ID missing", false, func(v *envelope) { v.orderID = `` }},
	{"order ID empty", false, func(v *envelope) { v.orderID = `""` }},
	{"order ID a number", false, func(v *envelope) { v.orderID = `1001` }},
	{"order ID with NUL", false, func(v *envelope) { v.orderID = `"o-\u0000"` }},
	{"order ID of another order", false, func(v *envelope) { v.orderID = `"another"` }},

	{"event ID missing", true, func(v *envelope) { v.eventID = `` }},
	{"event ID empty", true, func(v *envelope) { v.eventID = `""` }},
	{"event ID too long", true, func(v *envelope) { v.eventID = quote(strings.Repeat("e", 201)) }},
	{"event ID too long in bytes", true, func(v *envelope) { v.eventID = quote(strings.Repeat("é", 101)) }},
	{"event ID with NUL", true, func(v *envelope) { v.eventID = `"e\u0000"` }},
	{"event ID null", true, func(v *envelope) { v.eventID = `null` }},

	{"type missing", true, func(v *envelope) { v.typ = `` }},
	{"type empty", true, func(v *envelope) { v.typ = `""` }},
	{"type too long", true, func(v *envelope) { v.typ = quote(strings.Repeat("T", 201)) }},
	{"type with NUL", true, func(v *envelope) { v.typ = `"Order\u0000"` }},
	{"type an object", true, func(v *envelope) { v.typ = `{}` }},

	{"time missing", true, func(v *envelope) { v.at = `` }},
	{"time without zone", true, func(v *envelope) { v.at = `"2026-01-01T10:00:00"` }},
	{"time on no day", true, func(v *envelope) { v.at = `"2026-02-30T10:00:00Z"` }},
	{"time at no hour", true, func(v *envelope) { v.at = `"2026-01-01T24:00:00Z"` }},
	{"time of one-digit hour", true, func(v *envelope) { v.at = `"2026-01-01T1:00:00Z"` }},
	{"time with a comma", true, func(v *envelope) { v.at = `"2026-01-01T10:00:00,5Z"` }},
	{"time in a leap second", true, func(v *envelope) { v.at = `"2016-12-31T23:59:60Z"` }},
	{"time with a blank", true, func(v *envelope) { v.at = `"2026-01-01 10:00:00Z"` }},
	{"time in no zone", true, func(v *envelope) { v.at = `"2026-01-01T10:00:00+24:00"` }},
	{"time before 1970", true, func(v *envelope) { v.at = `"1970-01-01T00:30:00+01:00"` }},
	{"time after 9999", true, func(v *envelope) { v.at = `"9999-12-31T23:59:59-01:00"` }},
	{"time in year 10000", true, func(v *envelope) { v.at = `"10000-01-01T00:00:00Z"` }},
	{"time a number", true, func(v *envelope) { v.at = `1767261600` }},
	{"time NaN", true, func(v *envelope) { v.at = `"NaN"` }},

	{"data missing", true, func(v *envelope) { v.data = `` }},
	{"data null", true, func(v *envelope) { v.data = `null` }},
	{"data an array", true, func(v *envelope) { v.data = `[]` }},
	{"data a string", true, func(v *envelope) { v.data = `"{}"` }},
	{"customer missing", true, createdWith(`{"total":{"amount":"1","currency":"JPY"}}`)},
	{"customer empty", true, createdWith(`{"customer_id":"","total":{"amount":"1","currency":"JPY"}}`)},
	{"customer a number", true, createdWith(`{"customer_id":9007199254740993,"total":{"amount":"1","currency":"JPY"}}`)},
	{"customer in capitals", true, createdWith(`{"Customer_ID":"c","total":{"amount":"1","currency":"JPY"}}`)},
	{"customer a number on payment", true, func(v *envelope) {
		v.typ, v.data = `"OrderPaid.v1"`, `{"payment_id":"p","customer_id":1,"amount":{"amount":"1","currency":"JPY"}}`
	}},
	{"payment ID missing", true, func(v *envelope) {
		v.typ, v.data = `"OrderPaid.v1"`, `{"amount":{"amount":"1","currency":"JPY"}}`
	}},
	{"reason missing", true, func(v *envelope) { v.typ, v.data = `"OrderCancelled.v1"`, `{}` }},
	{"reason too long", true, func(v *envelope) {
		v.typ, v.data = `"OrderReturned.v1"`, `{"reason":`+quote(strings.Repeat("r", 1001))+`}`
	}},
	{"carrier with NUL", true, func(v *envelope) {
		v.typ, v.data = `"OrderShipped.v1"`, `{"carrier":"\u0000","tracking_number":"t"}`
	}},
	{"money missing", true, createdWith(`{"customer_id":"c"}`)},
	{"money a number", true, createdWith(`{"customer_id":"c","total":19.99}`)},
	{"half a cent", true, total(`"19.995"`, "EUR")},
	{"half a cent as a number", true, total(`19.995`, "EUR")},
	{"part of a yen", true, total(`"100.5"`, "JPY")},
	{"four places of dinar", true, total(`"1.2345"`, "KWD")},
	{"negative money", true, total(`"-0.01"`, "EUR")},
	{"money NaN", true, total(`"NaN"`, "EUR")},
	{"money Infinity", true, total(`"Infinity"`, "EUR")},
	{"money with a comma", true, total(`"19,99"`, "EUR")},
	{"money with a plus", true, total(`"+19.99"`, "EUR")},
	{"money with blanks", true, total(`" 19.99 "`, "EUR")},
	{"money without a leading digit", true, total(`".99"`, "EUR")},
	{"money with a leading zero", true, total(`"019.99"`, "EUR")},
	{"money in hexadecimal", true, total(`"0x10"`, "EUR")},
	{"empty money", true, total(`""`, "EUR")},
	{"too much money", true, total(`"92233720368547758.08"`, "EUR")},
	{"money beyond measure", true, total(`1e999999999999999999`, "EUR")},
	{"money below measure", true, total(`1e-999999999999999999`, "EUR")},
	{"unknown currency", true, total(`"1"`, "ABC")},
	{"currency in small letters", true, total(`"1"`, "eur")},
	{"gold", true, total(`"1"`, "XAU")},
	{"currency missing", true, createdWith(`{"customer_id":"c","total":{"amount":"1"}}`)},
	{"amount missing", true, createdWith(`{"customer_id":"c","total":{"currency":"EUR"}}`)},
	{"amount null", true, createdWith(`{"customer_id":"c","total":{"amount":null,"currency":"EUR"}}`)},
}

func createdWith(data string) func(*envelope) {
	return func(v *envelope) { v.typ, v.data = `"OrderCreated.v1"`, data }
}

func total(amount, currency string) func(*envelope) {
	return createdWith(`{"customer_id":"c","total":{"amount":` + amount + `,"currency":` + quote(currency) + `}}`)
}
