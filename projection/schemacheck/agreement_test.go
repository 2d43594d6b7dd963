package schemacheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/domain/order/schemas"
	"github.com/orderprojector/orderprojector/projection"
)

func newChecker(t testing.TB) *Checker {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refusal is what the decoder says of an event without a key, empty when it is accepted. known is
// false for a type without a schema.
func refusal(t testing.TB, value []byte) (detail string, known bool) {
	t.Helper()
	env, err := projection.EventDecoder{}.Decode(&projection.Record{Value: value})
	var invalid *projection.DecodeError
	if errors.As(err, &invalid) {
		return invalid.Detail, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return "", env.Event != nil
}

// Validators with the schemas, and the rules beside them, agree with the decoder on every record
// that the generator can think of: nothing that is accepted is found fault with, and
// wherever an event is an object, a place is named that is wrong.
func TestSchemasAgreeWithTheDecoder(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	stream, err := generate.New(generate.Config{Seed: 21, Orders: 400, Rates: generate.Rates{
		Reencoded: 0.3, Conflict: 0.1, Poison: 0.6, Unsupported: 0.1, HugeVersion: 0.05, Lines: 0.5,
	}})
	if err != nil {
		t.Fatal(err)
	}
	accepted, refused := 0, 0
	for g := range stream.All() {
		event, isObject := parse(g.Value)
		if !isObject || t.Failed() {
			continue
		}
		problems := c.problems(event)
		switch detail, known := refusal(t, g.Value); {
		case detail != "":
			refused++
			if len(problems) == 0 && !isText(detail) {
				t.Errorf("nothing is found, and the decoder says %q: %.500s", detail, g.Value)
			}
		case known:
			accepted++
			if len(problems) > 0 {
				t.Errorf("accepted, but %+v: %s", problems, g.Value)
			}
		case len(problems) != 1 || problems[0].Path != "/type":
			t.Errorf("an unknown type gives %+v: %s", problems, g.Value)
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 2000 || refused < 500 {
		t.Error("too little was compared")
	}
}

// isText reports whether the decoder refuses the text itself, of which a validator sees nothing.
func isText(detail string) bool {
	for _, cause := range []string{"duplicate key", "not JSON: ", "value starts with a byte order mark"} {
		if strings.HasPrefix(detail, cause) {
			return true
		}
	}
	return false
}

func plain(typ, version, at, data string) string {
	return fmt.Sprintf(`{"event_id":"e","order_id":"o","type":%q,"version":%s,"occurred_at":%q,"data":%s}`, typ, version, at, data)
}

// corpus are events that show where the schemas end: limit names the schemas.Limit which only the
// decoder keeps, or is empty where the schema says the same.
var corpus = []struct {
	accepted bool
	limit    string
	event    string
}{
	{true, "", plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`)},
	{true, "", plain("OrderPacked", "9223372036854775807", "1969-12-31T23:59:59.5-01:00", `{"note":[1.0,null]}`)},
	{true, "", plain("OrderAmended.v1", "2", "2026-01-01t10:00:00z", `{"total":{"amount":-0.00,"currency":"EUR"}}`)},
	{true, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00+05:30", `{"total":{"amount":"-0e3","currency":"KWD"}}`)},
	{true, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":1.999e1,"currency":"EUR"}}`)},
	{true, "", plain("OrderPaid.v1", "2", "2026-01-01T10:00:00Z", `{"payment_id":"p","customer_id":null,"amount":{"amount":"1","currency":"JPY"}}`)},
	{true, "", plain("OrderCancelled.v1", "2", "2026-01-01T10:00:00Z", `{"reason":""}`)},
	{true, "", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[{"sku":"s","quantity":9223372036854775807,"unit_price":{"amount":"0.01","currency":"EUR"}}]}`)},

	{false, "", plain("OrderPacked.v1", "0", "2026-01-01T10:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", "9223372036854775808", "2026-01-01T10:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", `"1"`, "2026-01-01T10:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", "1", "2026-01-01T10:00:00", `{}`)},
	{false, "", plain("OrderPacked.v1", "1", "2026-13-01T10:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", "1", "2026-01-01T24:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", "1", "1968-01-01T10:00:00Z", `{}`)},
	{false, "", plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `[]`)},
	{false, "", plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `null`)},
	{false, "", strings.Replace(plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`), `"event_id":"e"`, `"event_id":""`, 1)},
	{false, "", strings.Replace(plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`), `"event_id":"e"`, `"event_id":"\u0000"`, 1)},
	{false, "", strings.Replace(plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`), `"event_id":"e"`, `"Event_ID":"e"`, 1)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":-1,"currency":"EUR"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"-1","currency":"EUR"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":" 1","currency":"EUR"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"01","currency":"EUR"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":true,"currency":"EUR"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"1","currency":"eur"}}`)},
	{false, "", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"1"}}`)},
	{false, "", plain("OrderPaid.v1", "2", "2026-01-01T10:00:00Z", `{"payment_id":null,"amount":{"amount":"1","currency":"JPY"}}`)},
	{false, "", plain("OrderPaid.v1", "2", "2026-01-01T10:00:00Z", `{"payment_id":"p","customer_id":"","amount":{"amount":"1","currency":"JPY"}}`)},
	{false, "", plain("OrderCancelled.v1", "2", "2026-01-01T10:00:00Z", `{"reason":null}`)},
	{false, "", plain("OrderCancelled.v1", "2", "2026-01-01T10:00:00Z", `{"reason":"`+strings.Repeat("x", 1001)+`"}`)},
	{false, "", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[]}`)},
	{false, "", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":{}}`)},
	{false, "", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[{"sku":"s","quantity":-1,"unit_price":{"amount":"0.01","currency":"EUR"}}]}`)},

	{false, "text", `{"version":1,` + plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`)[1:]},
	{false, "integer", plain("OrderPacked.v1", "1.0", "2026-01-01T10:00:00Z", `{}`)},
	{false, "integer", plain("OrderPacked.v1", "1e0", "2026-01-01T10:00:00Z", `{}`)},
	{false, "integer", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[{"sku":"s","quantity":2.0,"unit_price":{"amount":"0.01","currency":"EUR"}}]}`)},
	{false, "bytes", strings.Replace(plain("OrderPacked.v1", "1", "2026-01-01T10:00:00Z", `{}`), `"event_id":"e"`, `"event_id":"`+strings.Repeat("é", 101)+`"`, 1)},
	{false, "bytes", plain("OrderCancelled.v1", "2", "2026-01-01T10:00:00Z", `{"reason":"`+strings.Repeat("é", 501)+`"}`)},
	{false, "bytes", plain("OrderShipped.v1", "2", "2026-01-01T10:00:00Z", `{"carrier":"`+strings.Repeat("é", 101)+`","tracking_number":"t"}`)},
	{false, "money", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"19.999","currency":"EUR"}}`)},
	{false, "money", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":1.5,"currency":"JPY"}}`)},
	{false, "money", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":"1","currency":"XAU"}}`)},
	{false, "money", plain("OrderRefunded.v1", "2", "2026-01-01T10:00:00Z", `{"refund_id":"r","amount":{"amount":"1e99","currency":"EUR"}}`)},
	{false, "money", plain("OrderAmended.v1", "2", "2026-01-01T10:00:00Z", `{"total":{"amount":1e999999999,"currency":"EUR"}}`)},
	{false, "total", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[{"sku":"s","quantity":2,"unit_price":{"amount":"92233720368547758.07","currency":"EUR"}}]}`)},
	{false, "total", plain("OrderCreated.v2", "1", "2026-01-01T10:00:00Z", `{"customer_id":"c","lines":[{"sku":"s","quantity":1,"unit_price":{"amount":"1","currency":"EUR"}},{"sku":"s","quantity":1,"unit_price":{"amount":"1","currency":"USD"}}]}`)},
	{false, "time", plain("OrderPacked.v1", "1", "2026-02-30T10:00:00Z", `{}`)},
	{false, "time", plain("OrderPacked.v1", "1", "9999-12-31T23:30:00-01:00", `{}`)},
	{false, "time", plain("OrderPacked.v1", "1", "1969-12-31T23:30:00Z", `{}`)},
}

func TestWhereTheSchemasEnd(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	shown := map[string]bool{"key": true, "order": true} // not in an event
	for _, e := range corpus {
		shown[e.limit] = true
		event, _ := parse([]byte(e.event))
		name, version := projection.SplitType(event["type"].(string))
		found := c.schemas[fmt.Sprintf("%s.v%d", name, version)].problems(event)
		detail, _ := refusal(t, []byte(e.event))
		if (detail == "") != e.accepted {
			t.Errorf("accepted should be %t, the decoder says %q: %s", e.accepted, detail, e.event)
		}
		if valid := e.accepted || e.limit != ""; (len(found) == 0) != valid {
			t.Errorf("the schema should accept it: %t; it finds %+v: %s", valid, found, e.event)
		}
		v := c.Check([]byte(e.event))
		if (v.Verdict == Accepted) != e.accepted || (len(v.Problems) == 0) != e.accepted || v.Reason != detail {
			t.Errorf("checked: %+v: %s", v, e.event)
		}
		if !e.accepted && e.limit != "text" && v.Problems[0].Path == "" {
			t.Errorf("no place is named: %+v: %s", v, e.event)
		}
	}
	for _, limit := range schemas.Limits() {
		if !shown[limit.Name] {
			t.Errorf("no event shows the limit %s", limit.Name)
		}
	}
}

// The example in each schema is accepted, and by its own version.
func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	all, err := schemas.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		d, err := s.Describe()
		if err != nil {
			t.Fatal(err)
		}
		if v := c.Check(d.Example); v.Verdict != Accepted || v.Type != s.Name() {
			t.Errorf("%s: %+v", s.Name(), v)
		}
	}
}

func FuzzCheck(f *testing.F) {
	c := newChecker(f)
	for _, e := range corpus {
		f.Add([]byte(e.event))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		v := c.Check(value)
		if (v.Verdict == Accepted) != (len(v.Problems) == 0) || (v.Verdict == Accepted) != (v.Reason == "") {
			t.Errorf("%+v", v)
		}
		event, isObject := parse(value)
		if isObject && v.Verdict == Accepted && v.Format == PlainJSON && len(c.problems(event)) > 0 {
			t.Errorf("accepted, but %+v", c.problems(event))
		}
		if _, err := json.Marshal(v); err != nil {
			t.Error(err)
		}
	})
}
