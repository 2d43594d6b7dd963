package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// plain is an event's JSON with members of the envelope replaced; data is what stands behind "data":.
func plainEvent(typ, version, data string) string {
	return `{"event_id":"e","order_id":"o","type":"` + typ + `","version":` + version + `,"occurred_at":"2026-01-01T10:00:02Z","data":` + data + `}`
}

func fill(n int, unit string) string { return strings.Repeat(unit, max(1, n/len(unit))) }

// members are n bytes of members with names of their own, in descending order.
func members(n int, value string) string {
	var b strings.Builder
	count := n / (len(value) + 13)
	for i := range count {
		fmt.Fprintf(&b, `"m%08d":%s,`, count-i, value)
	}
	return b.String()
}

// nested is a chain of objects of n bytes, each with its members out of order. Its depth grows with n, nearly up to the
// 10,000 that the decoder allows.
func nested(n int) string {
	depth := max(1, n/932)
	pad := strings.Repeat("x", 920)
	return strings.Repeat(`{"z":"`+pad+`","a":`, depth) + "1" + strings.Repeat("}", depth)
}

// hostileShapes are records of about n bytes, each of which some way of reading takes more than linear time for.
var hostileShapes = map[string]func(n int) projection.Record{
	"version of digits":          value(func(n int) string { return plainEvent("OrderPacked", fill(n, "7"), "{}") }),
	"version with leading zeros": value(func(n int) string { return plainEvent("OrderPacked", fill(n, "0")+"1", "{}") }),
	"version with an exponent":   value(func(n int) string { return plainEvent("OrderPacked", "1e"+fill(n, "9"), "{}") }),
	"amount of digits":           value(func(n int) string { return money(fill(n, "9")) }),
	"amount of zeros":            value(func(n int) string { return money("0." + fill(n, "0") + "1") }),
	"amount with zeros behind":   value(func(n int) string { return money("19.99" + fill(n, "0")) }),
	"amount with an exponent":    value(func(n int) string { return money("1e" + fill(n, "9")) }),
	"amount with a shift":        value(func(n int) string { return money("1" + fill(n/2, "0") + "e-" + fmt.Sprint(n/2)) }),
	"amount as a text":           value(func(n int) string { return money(`"` + fill(n, "9") + `"`) }),
	"number of digits":           value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":1`+fill(n, "23456789")+`}`) }),
	"number with an exponent":    value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":1e`+fill(n, "98765432")+`}`) }),
	"number with a fraction": value(func(n int) string {
		return plainEvent("OrderPacked", "2", `{"x":0.`+fill(n, "0")+`1e-`+fill(n/8, "9")+`}`)
	}),
	"many numbers":         value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":[`+fill(n, "1e99,")+`1]}`) }),
	"brackets without end": value(func(n int) string { return fill(n, "[") }),
	"braces without end":   value(func(n int) string { return fill(n, `{"a":`) }),
	"brackets in the data": value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":`+fill(n/2, "[")+fill(n/2, "]")+`}`) }),
	"nested objects":       value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":`+nested(n)+`}`) }),
	"nested arrays": value(func(n int) string {
		return plainEvent("OrderPacked", "2", `{"x":[`+fill(n, strings.Repeat("[", 900)+strings.Repeat("]", 900)+",")+`1]}`)
	}),
	"a nested mistake": value(func(n int) string {
		return plainEvent("OrderPacked", "2", `{"x":`+strings.TrimRight(nested(n), "}")+`}`)
	}),
	"many members":                value(func(n int) string { return plainEvent("OrderPacked", "2", `{`+members(n, "1")+`"z":1}`) }),
	"many members of an envelope": value(func(n int) string { return `{` + members(n, "1") + plainEvent("OrderPacked", "2", "{}")[1:] }),
	"the same member":             value(func(n int) string { return plainEvent("OrderPacked", "2", `{`+fill(n, `"a":1,`)+`"a":1}`) }),
	"the last member twice":       value(func(n int) string { return plainEvent("OrderPacked", "2", `{`+members(n, "1")+`"m00000001":1}`) }),
	"many small objects":          value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":[`+fill(n, `{"b":1,"a":2},`)+`1]}`) }),
	"a large object, small ones": value(func(n int) string {
		return plainEvent("OrderPacked", "2", `{"x":[{`+members(n/2, "1")+`"z":1},`+fill(n/2, `{"b":{}},`)+`1]}`)
	}),
	"names with a common beginning": value(func(n int) string {
		long := strings.Repeat("p", 500)
		return plainEvent("OrderPacked", "2", `{"x":{`+strings.ReplaceAll(members(n/40, "1"), `"m`, `"`+long)+`"z":1}}`)
	}),
	"escapes":        value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":"`+fill(n, `é\n\"`)+`"}`) }),
	"escaped names":  value(func(n int) string { return plainEvent("OrderPacked", "2", `{"`+fill(n, `\\`)+`":1}`) }),
	"half an escape": value(func(n int) string { return plainEvent("OrderPacked", "2", `{"x":"`+fill(n, `\n`)+`\ud800"}`) }),
	"a long order ID": value(func(n int) string {
		return strings.Replace(plainEvent("OrderPacked", "2", "{}"), `"o"`, `"`+fill(n, "o")+`"`, 1)
	}),
	"a long event ID": value(func(n int) string {
		return strings.Replace(plainEvent("OrderPacked", "2", "{}"), `"e"`, `"`+fill(n, `e`)+`"`, 1)
	}),
	"a long type": value(func(n int) string { return plainEvent("OrderPacked"+fill(n, ".v1"), "2", "{}") }),
	"a long time": value(func(n int) string {
		return strings.Replace(plainEvent("OrderPacked", "2", "{}"), "02Z", "02."+fill(n, "1")+"Z", 1)
	}),
	"a long time with a zone": value(func(n int) string {
		return strings.Replace(plainEvent("OrderPacked", "2", "{}"), "02Z", "02+"+fill(n, "1"), 1)
	}),
	"a long reason": value(func(n int) string { return plainEvent("OrderCancelled", "2", `{"reason":"`+fill(n, "r")+`"}`) }),
	"a long currency": value(func(n int) string {
		return plainEvent("OrderAmended", "2", `{"total":{"amount":1,"currency":"`+fill(n, "E")+`"}}`)
	}),
	"many lines": value(func(n int) string {
		return plainEvent("OrderCreated.v2", "1", `{"customer_id":"c","lines":[`+fill(n, line+",")+line+`]}`)
	}),
	"lines that are no lines": value(func(n int) string {
		return plainEvent("OrderCreated.v2", "1", `{"customer_id":"c","lines":[`+fill(n, "{},")+`{}]}`)
	}),
	"spaces":                   value(func(n int) string { return fill(n, " \n") + plainEvent("OrderPacked", "2", "{}") + fill(n, " ") }),
	"spaces and nothing":       value(func(n int) string { return fill(n, " ") }),
	"no JSON":                  value(func(n int) string { return fill(n, "\xff") }),
	"words":                    value(func(n int) string { return fill(n, "true ") }),
	"binary: many headers":     headers(func(n int) [][2]string { return repeatHeader(n/30, "ce_other%d", "v") }),
	"binary: the same header":  headers(func(n int) [][2]string { return repeatHeader(n/30, "ce_other", "v") }),
	"binary: names in capital": headers(func(n int) [][2]string { return [][2]string{{"CE_" + fill(n, "AB"), ""}} }),
	"binary: a long version":   headers(func(n int) [][2]string { return [][2]string{{"ce_orderversion", fill(n, "9")}} }),
	"binary: a long type":      headers(func(n int) [][2]string { return [][2]string{{"ce_type", "Order" + fill(n, ".v1")}} }),
	"binary: a long order ID":  headers(func(n int) [][2]string { return [][2]string{{"ce_subject", fill(n, "o")}} }),
	"binary: a long time":      headers(func(n int) [][2]string { return [][2]string{{"ce_time", "2026-01-01T10:00:02." + fill(n, "1") + "Z"}} }),
	"binary: no UTF-8":         headers(func(n int) [][2]string { return [][2]string{{"ce_" + fill(n, "\xff"), fill(n, "\xff")}} }),
	"binary: empty headers":    headers(func(n int) [][2]string { return repeatHeader(n/2, "", "") }),
	"binary: content type":     headers(func(n int) [][2]string { return [][2]string{{"content-type", "application/json" + fill(n, ";a=b")}} }),
	"binary: parameters": headers(func(n int) [][2]string {
		var b strings.Builder
		for i := range n / 12 {
			fmt.Fprintf(&b, ";p*%d=%d", i, i%10)
		}
		return [][2]string{{"content-type", "application/json" + b.String()}}
	}),
	"binary: many parameters": headers(func(n int) [][2]string {
		var b strings.Builder
		for i := range n / 12 {
			fmt.Fprintf(&b, "; p%d*0=1", i)
		}
		return [][2]string{{"content-type", "application/json" + b.String()}}
	}),
	"binary: a quoted charset": headers(func(n int) [][2]string {
		return [][2]string{{"content-type", `application/json; charset="` + fill(n, `\"`)}}
	}),
	"structured: content type": func(n int) projection.Record {
		return projection.Record{Value: []byte("{}"), Headers: []projection.Header{{Key: "content-type", Value: []byte("application/cloudevents+json;" + fill(n, ` a="b";`))}}}
	},
	"structured: data in base64": func(n int) projection.Record { return structured(`"data_base64":"` + fill(n, "e30K") + `"`) },
	"structured: no base64":      func(n int) projection.Record { return structured(`"data_base64":"` + fill(n, "e30=") + `"`) },
	"structured: many members":   func(n int) projection.Record { return structured(members(n, "{}") + `"data":{}`) },
}

const line = `{"sku":"s","quantity":1,"unit_price":{"amount":"0.01","currency":"EUR"}}`

func money(amount string) string {
	return plainEvent("OrderAmended", "2", `{"total":{"amount":`+amount+`,"currency":"EUR"}}`)
}

func value(text func(n int) string) func(n int) projection.Record {
	return func(n int) projection.Record { return projection.Record{Key: []byte("o"), Value: []byte(text(n))} }
}

func headers(more func(n int) [][2]string) func(n int) projection.Record {
	return func(n int) projection.Record {
		r := projection.Record{Key: []byte("o"), Value: []byte(`{"reason":"r"}`)}
		hostile := more(n)
		for _, h := range [][2]string{
			{"ce_specversion", "1.0"}, {"ce_id", "e"}, {"ce_type", "OrderCancelled"}, {"ce_source", "s"}, {"ce_subject", "o"},
			{"ce_time", "2026-01-01T10:00:02Z"}, {"ce_orderversion", "2"},
		} {
			if h[0] != hostile[0][0] {
				r.Headers = append(r.Headers, projection.Header{Key: h[0], Value: []byte(h[1])})
			}
		}
		for _, h := range hostile {
			r.Headers = append(r.Headers, projection.Header{Key: h[0], Value: []byte(h[1])})
		}
		return r
	}
}

func repeatHeader(n int, name, value string) [][2]string {
	all := make([][2]string, max(1, n))
	for i := range all {
		all[i] = [2]string{name, value}
		if strings.Contains(name, "%d") {
			all[i][0] = fmt.Sprintf(name, i)
		}
	}
	return all
}

func structured(more string) projection.Record {
	return projection.Record{
		Key: []byte("o"), Headers: []projection.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}},
		Value: []byte(`{"specversion":"1.0","id":"e","type":"OrderPacked","source":"s","subject":"o","time":"2026-01-01T10:00:02Z","orderversion":2,` + more + `}`),
	}
}

// decideAll does with a record what the projector does with one that comes twice, written differently.
func decideAll(r *projection.Record) {
	projection.RecordDigest(r)
	env, invalid := projection.DecodeRecord(projection.EventDecoder{}, r)
	if invalid != nil || env.Data == nil {
		return
	}
	again := env
	again.Data = append([]byte(" "), env.Data...)
	if !projection.SameEvent(&env, &again) {
		panic("an event is not the same as itself")
	}
}

// linear checks the work for a record of a shape.
func linear(t *testing.T, shape func(n int) projection.Record, n int) {
	t.Helper()
	projectiontest.Linear(t, n, func(n int) func() {
		r := shape(n)
		return func() { decideAll(&r) }
	})
}

// Deciding a record takes time and memory linear in its size, up to records of 8 MB, whatever its numbers, texts, nesting and headers.
func TestDecidingIsLinear(t *testing.T) {
	n := 2 << 20
	if testing.Short() {
		n = 256 << 10
	}
	for name, shape := range hostileShapes {
		t.Run(name, func(t *testing.T) { linear(t, shape, n) })
	}
}

// The fast path takes none of the hostile shapes for something else than the strict decoder does, also where they are small.
func TestDecodersAgreeOnHostileShapes(t *testing.T) {
	fast := 0
	for name, shape := range hostileShapes {
		for _, n := range []int{1, 17, 100, 1000, 100_000} {
			r := shape(n)
			if len(r.Headers) == 0 && projection.Agree(t, r.Key, r.Value) {
				fast++
			}
			checkDecided(t, name, &r)
		}
	}
	if fast < 20 {
		t.Errorf("only %d records went the fast path: too little was compared", fast)
	}
}

// FuzzDecideLinear puts a piece of input between two others again and again, as data or as the whole value. The time
// per byte of a large record must not be far from that of a smaller one.
func FuzzDecideLinear(f *testing.F) {
	for _, seed := range [][3]string{
		{`{"x":1e`, "98765432", "}"}, {`{"x":[`, "1e9,", "1]}"}, {"", `{"b":1,"a":`, ""}, {`{"`, `\\`, `":1}`}, {`{"x":"`, "\\u00e9", `"}`},
		{`{"x":-0.`, "0", `1e-17}`}, {`{"reason":"`, "é", `"}`}, {`{"customer_id":"c","lines":[`, line + ",", line + "]}"}, {`{"total":{"amount":1`, "0", `,"currency":"JPY"}}`},
	} {
		for _, typ := range []string{"", "OrderPacked", "OrderCreated.v2", "OrderAmended"} {
			f.Add(typ, seed[0], seed[1], seed[2])
		}
	}
	f.Fuzz(func(t *testing.T, typ, before, unit, after string) {
		if unit == "" || len(before)+len(unit)+len(after)+len(typ) > 1000 {
			return
		}
		linear(t, value(func(n int) string {
			body := before + fill(n, unit) + after
			if typ == "" {
				return body
			}
			return plainEvent(typ, "2", body)
		}), 64<<10)
	})
}
