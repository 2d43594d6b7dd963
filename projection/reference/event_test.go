package reference

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

func decodeText(value string) (event, error) {
	e, _, err := decode(projection.Record{Key: []byte("o"), Value: []byte(value)})
	return e, err
}

func TestStrictJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"object":                    {` {"a":[1,-0.5e+3,"x",true,null,{}]} `, true},
		"nothing":                   {``, false},
		"blanks":                    {` `, false},
		"two values":                {`{} {}`, false},
		"trailing comma":            {`[1,]`, false},
		"byte order mark":           {"\xEF\xBB\xBF{}", false},
		"invalid UTF-8":             {"\"\xFF\"", false},
		"overlong UTF-8":            {"\"\xC0\x80\"", false},
		"encoded surrogate":         {"\"\xED\xA0\x80\"", false},
		"replacement character":     {`"` + "\uFFFD" + `"`, true},
		"duplicate names":           {`{"a":1,"a":1}`, false},
		"escaped duplicate":         {`{"a":1,"\u0061":1}`, false},
		"nested duplicate":          {`[{"x":{"a":1,"a":2}}]`, false},
		"same name elsewhere":       {`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, true},
		"case differs":              {`{"a":1,"A":2}`, true},
		"surrogate pair":            {`"\ud83d\ude00"`, true},
		"high surrogate alone":      {`"\ud83d"`, false},
		"high surrogate, then text": {`"\ud83dx\ude00"`, false},
		"two high surrogates":       {`"\ud83d\ud83d\ude00"`, false},
		"low surrogate alone":       {`"\ude00"`, false},
		"escaped backslash, text":   {`"\\ud83d"`, true},
		"escapes":                   {`"\"\\\/\b\f\n\r\t\u0000"`, true},
		"10,000 levels":             {nested(10_000), true},
		"10,001 levels":             {nested(10_001), false},
		"100,000 open":              {strings.Repeat("[", 100_000), false},
		"leading zero":              {`01`, false},
		"NaN":                       {`NaN`, false},
		"plus":                      {`+1`, false},
	} {
		if _, err := parseJSON([]byte(c.text)); (err == nil) != c.ok {
			t.Errorf("%s: %v, want accepted %t", name, err, c.ok)
		}
	}
}

func TestDecimals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e5": "0", "0e99999999999999999999": "0", "1": "1e0", "10": "1e1", "1e1": "1e1",
		"1.50": "15e-1", "150e-2": "15e-1", "-1.5": "-15e-1", "0.015E+2": "15e-1",
		"12345678901234567890.12": "1234567890123456789012e-2", "1e99999999999999999999": "1e99999999999999999999",
		"": "", "+1": "", ".5": "", "5.": "", "01": "", "-": "", "1e": "", "1e+": "", "0x1": "", " 1": "", "1 ": "", "NaN": "",
		"Infinity": "", "1,5": "", "1_0": "", "١": "",
	} {
		d, ok := parseDecimal(text)
		if got := d.stringIf(ok); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func (d decimal) stringIf(ok bool) string {
	if !ok {
		return ""
	}
	return d.String()
}

func TestMoney(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{ // -1: refused
		`{"amount":"19.99","currency":"EUR"}`:                1999,
		`{"amount":19.99,"currency":"EUR"}`:                  1999,
		`{"amount":1.999e1,"currency":"EUR"}`:                1999,
		`{"amount":"19.990","currency":"EUR"}`:               1999,
		`{"amount":"19.995","currency":"EUR"}`:               -1,
		`{"amount":"0","currency":"EUR"}`:                    0,
		`{"amount":"-0.00","currency":"EUR"}`:                0,
		`{"amount":"-0.01","currency":"EUR"}`:                -1,
		`{"amount":"100","currency":"JPY"}`:                  100,
		`{"amount":"100.0","currency":"JPY"}`:                100,
		`{"amount":"100.5","currency":"JPY"}`:                -1,
		`{"amount":"1.234","currency":"KWD"}`:                1234,
		`{"amount":"1.2345","currency":"KWD"}`:               -1,
		`{"amount":"1.2345","currency":"CLF"}`:               12345,
		`{"amount":"92233720368547758.07","currency":"EUR"}`: 9223372036854775807,
		`{"amount":"92233720368547758.08","currency":"EUR"}`: -1,
		`{"amount":9223372036854775807,"currency":"JPY"}`:    9223372036854775807,
		`{"amount":1e18,"currency":"JPY"}`:                   1000000000000000000,
		`{"amount":1e19,"currency":"JPY"}`:                   -1,
		`{"amount":1e9999999999,"currency":"JPY"}`:           -1,
		`{"amount":1e-9999999999,"currency":"JPY"}`:          -1,
		`{"amount":0e9999999999,"currency":"JPY"}`:           0,
		`{"amount":"1","currency":"EUR","amounts":"2"}`:      1,
		`{"amount":"NaN","currency":"EUR"}`:                  -1,
		`{"amount":"","currency":"EUR"}`:                     -1,
		`{"amount":" 1","currency":"EUR"}`:                   -1,
		`{"amount":null,"currency":"EUR"}`:                   -1,
		`{"amount":true,"currency":"EUR"}`:                   -1,
		`{"amount":["1"],"currency":"EUR"}`:                  -1,
		`{"currency":"EUR"}`:                                 -1,
		`{"amount":"1"}`:                                     -1,
		`{"Amount":"1","currency":"EUR"}`:                    -1,
		`{"amount":"1","currency":"eur"}`:                    -1,
		`{"amount":"1","currency":"XAU"}`:                    -1,
		`{"amount":"1","currency":978}`:                      -1,
		`{"amount":"1","currency":null}`:                     -1,
		`"1 EUR"`:                                            -1, `null`: -1, `1`: -1, `[]`: -1,
	} {
		value, err := parseJSON([]byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		got, err := readMoney(value)
		if want < 0 && err == nil || want >= 0 && (err != nil || got.minor != want && text != `{"amount":"1","currency":"EUR","amounts":"2"}`) {
			t.Errorf("%s: %+v, %v; want %d", text, got, err, want)
		}
	}
}

func TestInstants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // empty: refused
		"2026-01-01T10:00:02Z":                 "2026-01-01T10:00:02Z",
		"2026-01-01t10:00:02z":                 "2026-01-01T10:00:02Z",
		"2026-01-01T12:00:02+02:00":            "2026-01-01T10:00:02Z",
		"2026-01-01T12:00:02-00:00":            "2026-01-01T12:00:02Z",
		"2026-01-01T10:00:02.5Z":               "2026-01-01T10:00:02.5Z",
		"2026-01-01T10:00:02.123456789999999Z": "2026-01-01T10:00:02.123456Z",
		"2026-01-01T10:00:02.9999999Z":         "2026-01-01T10:00:02.999999Z",
		"1970-01-01T00:00:00Z":                 "1970-01-01T00:00:00Z",
		"1969-12-31T23:30:00-01:00":            "1970-01-01T00:30:00Z",
		"1970-01-01T00:30:00+01:00":            "",
		"1969-12-31T23:59:59.999999999Z":       "",
		"9999-12-31T23:59:59.999999999Z":       "9999-12-31T23:59:59.999999Z",
		"9999-12-31T23:59:59-00:01":            "",
		"2024-02-29T00:00:00Z":                 "2024-02-29T00:00:00Z",
		"2026-02-29T00:00:00Z":                 "",
		"2026-13-01T00:00:00Z":                 "",
		"2026-00-01T00:00:00Z":                 "",
		"2026-01-00T00:00:00Z":                 "",
		"2026-01-01T24:00:00Z":                 "",
		"2026-01-01T10:60:00Z":                 "",
		"2026-01-01T10:00:60Z":                 "",
		"2026-01-01T10:00:02":                  "",
		"2026-01-01T10:00:02+0200":             "",
		"2026-01-01T10:00:02+02":               "",
		"2026-01-01T10:00:02+24:00":            "",
		"2026-01-01T10:00:02+10:60":            "",
		"2026-01-01T10:00:02.Z":                "",
		"2026-01-01T10:00:02,5Z":               "",
		"2026-01-01T1:00:02Z":                  "",
		"2026-1-01T10:00:02Z":                  "",
		"2026-01-01 10:00:02Z":                 "",
		" 2026-01-01T10:00:02Z":                "",
		"2026-01-01T10:00:02Z\n":               "",
		"2026-01-01T10:00:02ZZ":                "",
		"12026-01-01T10:00:02Z":                "",
		"20260101T100002Z":                     "",
		"2026-01-01":                           "",
		"":                                     "",
	} {
		got, ok := parseInstant(text)
		if ok != (want != "") || ok && got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %s, %t; want %q", text, got, ok, want)
		}
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	const good = `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":3,"occurred_at":"2026-01-01T10:00:00Z","data":{}}`
	if e, err := decodeText(good); err != nil || e.known != "OrderPacked" || e.version != 3 {
		t.Fatalf("%+v, %v", e, err)
	}
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		old, new string
		ok       bool
	}{
		{`"e"`, `"` + long + `"`, true},
		{`"e"`, `"` + long + `x"`, false},
		{`"e"`, `""`, false},
		{`"e"`, `"\u0000"`, false},
		{`"e"`, `1`, false},
		{`"e"`, `null`, false},
		{`"o"`, `"O"`, false},
		{`"o"`, `"\u006f"`, true},
		{`"o"`, `null`, false},
		{`"OrderPacked.v1"`, `"OrderPacked"`, true},
		{`"OrderPacked.v1"`, `"` + long + `"`, true},
		{`"OrderPacked.v1"`, `"` + long + `x"`, false},
		{`"OrderPacked.v1"`, `""`, false},
		{`"OrderPacked.v1"`, `null`, false},
		{`"OrderPacked.v1"`, `"\u0000"`, false},
		{`3`, `9223372036854775807`, true},
		{`3`, `9223372036854775808`, false},
		{`3`, `9007199254740993`, true},
		{`3`, `0`, false},
		{`3`, `-1`, false},
		{`3`, `3.0`, false},
		{`3`, `3e0`, false},
		{`3`, `"3"`, false},
		{`3`, `null`, false},
		{`3`, `[3]`, false},
		{`"2026-01-01T10:00:00Z"`, `1767261600`, false},
		{`"2026-01-01T10:00:00Z"`, `null`, false},
		{`{}}`, `{"anything":[1,{"x":null}]},"more":1}`, true},
		{`{}}`, `null}`, false},
		{`{}}`, `[]}`, false},
		{`,"data":{}`, ``, false},
		{`"data"`, `"Data"`, false},
		{`"version"`, `"VERSION"`, false},
		{`"type":"OrderPacked.v1"`, `"type":"OrderPacked.v1","Type":"x"`, true},
	} {
		value := strings.Replace(good, c.old, c.new, 1)
		if _, err := decodeText(value); (err == nil) != c.ok {
			t.Errorf("%s: %v, want accepted %t", value, err, c.ok)
		}
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	const total, amount = `"total":{"amount":"1","currency":"EUR"}`, `"amount":{"amount":"1","currency":"EUR"}`
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		typ, data string
		ok        bool
	}{
		{"OrderCreated", `{"customer_id":"c",` + total + `}`, true},
		{"OrderCreated", `{"customer_id":"` + long + `",` + total + `}`, true},
		{"OrderCreated", `{"customer_id":"` + long + `x",` + total + `}`, false},
		{"OrderCreated", `{"customer_id":"",` + total + `}`, false},
		{"OrderCreated", `{"customer_id":7,` + total + `}`, false},
		{"OrderCreated", `{"customer_id":null,` + total + `}`, false},
		{"OrderCreated", `{` + total + `}`, false},
		{"OrderCreated", `{"customer_id":"c"}`, false},
		{"OrderCreated", `{"customer_id":"c","total":null}`, false},
		{"OrderCreated", `{"customer_id":"c",` + amount + `}`, false},
		{"OrderAmended", `{` + total + `}`, true},
		{"OrderAmended", `{}`, false},
		{"OrderPaid", `{"payment_id":"p",` + amount + `}`, true},
		{"OrderPaid", `{"payment_id":"p","customer_id":"c",` + amount + `}`, true},
		{"OrderPaid", `{"payment_id":"p","customer_id":"",` + amount + `}`, false},
		{"OrderPaid", `{"payment_id":"p","customer_id":null,` + amount + `}`, true},
		{"OrderPaid", `{"payment_id":"\u0000",` + amount + `}`, false},
		{"OrderPaid", `{` + amount + `}`, false},
		{"OrderPaid", `{"payment_id":"p"}`, false},
		{"OrderPacked", `{}`, true},
		{"OrderPacked", `{"carrier":7}`, true},
		{"OrderShipped", `{"carrier":"c","tracking_number":"t"}`, true},
		{"OrderShipped", `{"carrier":"c"}`, false},
		{"OrderShipped", `{"tracking_number":"t"}`, false},
		{"OrderShipped", `{"carrier":"","tracking_number":"t"}`, false},
		{"OrderDelivered", `{}`, true},
		{"OrderCancelled", `{"reason":""}`, true},
		{"OrderCancelled", `{"reason":"` + strings.Repeat("x", 1000) + `"}`, true},
		{"OrderCancelled", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, false},
		{"OrderCancelled", `{"reason":"\u0000"}`, false},
		{"OrderCancelled", `{"reason":null}`, false},
		{"OrderCancelled", `{}`, false},
		{"OrderReturned", `{"reason":"r"}`, true},
		{"OrderReturned", `{}`, false},
		{"OrderRefunded", `{"refund_id":"r",` + amount + `}`, true},
		{"OrderRefunded", `{"refund_id":"r","customer_id":1,` + amount + `}`, false},
		{"OrderRefunded", `{` + amount + `}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"s","quantity":3,"unit_price":{"amount":"0.10","currency":"EUR"}}]}`, true},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"s","quantity":1,"unit_price":{"amount":"1","currency":"EUR"}},{"sku":"s","quantity":1,"unit_price":{"amount":"1","currency":"USD"}}]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"s","quantity":2,"unit_price":{"amount":"46116860184273879.04","currency":"EUR"}}]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"s","quantity":1,"unit_price":{"amount":"92233720368547758.07","currency":"EUR"}}]}`, true},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"s","quantity":0,"unit_price":{"amount":"1","currency":"EUR"}}]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[{"sku":"","quantity":1,"unit_price":{"amount":"1","currency":"EUR"}}]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c","lines":[null]}`, false},
		{"OrderCreated.v2", `{"customer_id":"c"}`, false},
		{"OrderCreated.v2", `null`, false},
		// Of another type or schema version nothing is known.
		{"OrderCreated.v3", `{}`, true},
		{"OrderCreated.v3", `null`, true},
		{"OrderPaid.v2", `{}`, true},
		{"OrderCreated.v01", `7`, true},
		{"OrderGiftWrapped", `[]`, true},
		{"ordercreated", `""`, true},
	} {
		value := fmt.Sprintf(`{"event_id":"e","order_id":"o","type":%q,"version":1,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`, c.typ, c.data)
		if _, err := decodeText(value); (err == nil) != c.ok {
			t.Errorf("%s: %v, want accepted %t", value, err, c.ok)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"OrderPaid": {"OrderPaid", "1"}, "OrderPaid.v1": {"OrderPaid", "1"}, "OrderPaid.v12": {"OrderPaid", "12"},
		"OrderPaid.v0": {"OrderPaid.v0", "1"}, "OrderPaid.v01": {"OrderPaid.v01", "1"}, "OrderPaid.V1": {"OrderPaid.V1", "1"},
		"OrderPaid.v": {"OrderPaid.v", "1"}, "OrderPaid.v1.v2": {"OrderPaid.v1", "2"}, ".v2": {".v2", "1"},
		"OrderPaid.v+1": {"OrderPaid.v+1", "1"}, "OrderPaid.v1 ": {"OrderPaid.v1 ", "1"},
	} {
		if name, schema := splitType(text); name != want[0] || schema != want[1] {
			t.Errorf("%q: %q, %q; want %q", text, name, schema, want)
		}
	}
}
