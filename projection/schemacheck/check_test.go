package schemacheck

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const paidEvent = `{"specversion":"1.0","source":"/shop","id":"e-2","type":"OrderPaid.v1","subject":"o-1","time":"2026-01-01T10:00:00Z",` +
	`"orderversion":2,"data":{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}}`

func TestAnAcceptedEventDependsOnItsOrder(t *testing.T) {
	t.Parallel()
	got := newChecker(t).Check([]byte(paidEvent))
	want := Verdict{
		Format: Structured, Verdict: Accepted, Type: "OrderPaid.v1", OrderID: "o-1", EventID: "e-2", Version: 2,
		Undecided: []string{
			`record key: it has to be "o-1", or null`,
			"version: the event is applied when the order is at version 1; before that it waits, and afterwards it is a duplicate or a conflict",
			"event ID: the order must not have used it for another version",
			"state: OrderPaid is legal in pending",
			"amount: 19.99 EUR has to be in the order's currency, with amount = total",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every place that is wrong is named, in the words of the event's own format.
func TestEveryProblemIsNamed(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	const at = `"occurred_at":"2026-01-01T10:00:00Z"`
	const wholeNumber = "a JSON integer from 1, without fraction or exponent"
	for name, e := range map[string]struct {
		event   string
		verdict string
		reason  string
		want    []Problem
	}{
		"plain": {
			`{"event_id":"","order_id":7,"type":"OrderPaid.v1","version":1.0,` + at + `,"data":{"amount":{"amount":"19.999","currency":"EUR"}}}`,
			Invalid, "/order_id: a JSON number is not allowed here",
			[]Problem{
				{"/data/payment_id", "the payment's own ID; 1 to 200 bytes of text without NUL", "nothing"},
				{"/event_id", "1 to 200 bytes of text without NUL", `""`},
				{"/order_id", "a JSON string; 1 to 200 bytes of text without NUL", "7"},
				{"/version", "a JSON integer, without fraction or exponent", "1.0"},
				{"/data/amount", "exact money of an ISO 4217 currency", `{"amount":"19.999","currency":"EUR"}: it is not a whole number of the currency's minor units`},
			},
		},
		"CloudEvent": {
			`{"specversion":"0.3","id":"e","type":"OrderCreated.v2","time":"yesterday","orderversion":"1","data_base64":"e30=","data":{"customer_id":"c","lines":[{"sku":"s","quantity":0}]}}`,
			Invalid, "data and data_base64 are both there",
			[]Problem{
				{"/specversion", `"1.0"`, `"0.3"`},
				{"/source", "a JSON string that is not empty; a URI of the service that publishes", "nothing"},
				{"/data_base64", "nothing, because data is there", `"e30="`},
				{"/data_base64/customer_id", "who the order is for; 1 to 200 bytes of text without NUL", "nothing"},
				{"/data_base64/lines", "what was ordered; all prices are in one currency, and the total fits into 64 bits of minor units", "nothing"},
				{"/time", "an RFC 3339 time with zone, in the years 1970 to 9999 UTC; kept to the microsecond", `"yesterday"`},
				{"/subject", "the record's key; 1 to 200 bytes of text without NUL", "nothing"},
				{"/orderversion", "a JSON integer; " + wholeNumber, `"1"`},
			},
		},
		"CloudEvent with lines": {
			`{"specversion":"1.0","source":"/s","id":"e","subject":"o","type":"OrderCreated.v2","time":"2026-01-01T10:00:00Z","orderversion":1,"data":{"customer_id":"c","lines":[{"sku":"s","quantity":0}]}}`,
			Invalid, `data of "OrderCreated.v2": lines[0].quantity 0 is outside 1..9223372036854775807`,
			[]Problem{
				{"/data/lines/0/quantity", wholeNumber, "0"},
				{"/data/lines/0/unit_price", "of one of them; may be zero; an exact amount of one currency", "nothing"},
			},
		},
		"unknown type": {
			`{"event_id":"e","order_id":"o","type":"OrderPaid.v9","version":1,` + at + `,"data":7}`,
			Unsupported, `unknown event type or schema version "OrderPaid.v9"`,
			[]Problem{{"/type", "one of OrderCreated.v1, OrderCreated.v2, OrderAmended.v1, OrderPaid.v1, OrderPacked.v1, OrderShipped.v1, " +
				"OrderDelivered.v1, OrderCancelled.v1, OrderReturned.v1, OrderRefunded.v1", `"OrderPaid.v9"`}},
		},
		"no JSON": {
			`{"event_id":`, Invalid, "not JSON: unexpected EOF at byte 12",
			[]Problem{{"", "an event that keeps the contract", "not JSON: unexpected EOF at byte 12"}},
		},
		"framed": {
			"\x00\x00\x00\x00\x2a{}", Invalid,
			"not JSON: the value begins with a schema registry frame (byte 0 and schema ID 42), which is not supported; publish JSON without a frame, or CloudEvents",
			[]Problem{{"", "an event that keeps the contract", "not JSON: the value begins with a schema registry frame (byte 0 and schema ID 42), which is not supported; publish JSON without a frame, or CloudEvents"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.Check([]byte(e.event))
			if got.Verdict != e.verdict || got.Reason != e.reason {
				t.Errorf("%s: %q, want %s: %q", got.Verdict, got.Reason, e.verdict, e.reason)
			}
			if diff := cmp.Diff(e.want, got.Problems); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"one":                      {`{"a":1}`, []string{`1 {"a":1}`}},
		"over lines":               {"\n{\n \"a\":1\n}\n", []string{"2 {\n \"a\":1\n}"}},
		"several":                  {"{\"a\":1}\n\n{\"a\":\n2}\n{}", []string{`1 {"a":1}`, "3 {\"a\":\n2}", "5 {}"}},
		"a broken line":            {"{\"a\":1}\n{\"a\"\n{}\n", []string{`1 {"a":1}`, `2 {"a"`, "3 {}"}},
		"a broken first line":      {"{\"a\"\n{}\n", []string{`1 {"a"`, "2 {}"}},
		"broken over lines":        {"{\n\"a\":,\n}\n", []string{"1 {\n\"a\":,\n}"}},
		"what the decoder refuses": {"{\"a\":1,\"a\":\"\xff\"}", []string{"1 {\"a\":1,\"a\":\"\xff\"}"}},
		"byte order mark":          {"\xef\xbb\xbf{}", []string{"1 \xef\xbb\xbf{}"}},
		"nothing":                  {" \n ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, in := range Split([]byte(c.file)) {
				got = append(got, fmt.Sprintf("%d %s", in.Line, in.Value))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
