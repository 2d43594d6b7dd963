package projection

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/order"
)

func createdRecord(typ, data string) *Record {
	return &Record{Value: fmt.Appendf(nil, `{"event_id":"e","order_id":"o","type":%q,"version":1,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`, typ, data)}
}

// The total of lines is their exact sum, or the event is refused.
func TestTotalsOfLinesAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) orderLine {
			return orderLine{
				sku: "s", quantity: rapid.Int64Min(1).Draw(t, "quantity"),
				unitPrice: order.Money{Minor: rapid.Int64Min(0).Draw(t, "price"), Currency: "EUR"},
			}
		}), 1, 4).Draw(t, "lines")
		sum := new(big.Int)
		var texts []string
		for _, l := range lines {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(l.quantity), big.NewInt(l.unitPrice.Minor)))
			texts = append(texts, fmt.Sprintf(`{"sku":"s","quantity":%d,"unit_price":{"amount":%q,"currency":"EUR"}}`, l.quantity, l.unitPrice.Amount()))
		}
		env, err := EventDecoder{}.Decode(createdRecord("OrderCreated.v2", `{"customer_id":"c","lines":[`+strings.Join(texts, ",")+`]}`))
		switch {
		case !sum.IsInt64():
			if err == nil || !strings.Contains(err.Error(), "the total's minor units do not fit into 64 bits") {
				t.Fatalf("%s: %+v, %v", sum, env.Event, err)
			}
		case err != nil || env.Event != order.Created{CustomerID: "c", Total: order.Money{Minor: sum.Int64(), Currency: "EUR"}}:
			t.Fatalf("%s: %+v, %v", sum, env.Event, err)
		}
	})
}

// An event of version 1 means the same, read on its own and upcast.
func TestUpcastingKeepsTheMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := order.Money{Minor: rapid.Int64Min(0).Draw(t, "total"), Currency: rapid.SampledFrom([]string{"EUR", "JPY", "KWD"}).Draw(t, "currency")}
		want := order.Created{CustomerID: "c", Total: total}
		upcast, err := createdV1{"c", total}.upcast().event()
		if err != nil || upcast != want {
			t.Fatalf("upcast: %+v, %v, want %+v", upcast, err, want)
		}
		rec := createdRecord("OrderCreated.v1", fmt.Sprintf(`{"customer_id":"c","total":{"amount":%q,"currency":%q}}`, total.Amount(), total.Currency))
		fast, ok := decodeFast(rec)
		strict, err := decodeStrict(rec)
		if !ok || err != nil || fast.Event != want || strict.Event != want {
			t.Fatalf("fast %+v, strict %+v, %v, want %+v", fast.Event, strict.Event, err, want)
		}
	})
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	const line = `{"sku":"s","quantity":1,"unit_price":{"amount":"1.00","currency":"EUR"}}`
	for data, detail := range map[string]string{
		`{"lines":[` + line + `]}`:                      "customer_id is missing or empty",
		`{"customer_id":"c"}`:                           "lines is missing or empty",
		`{"customer_id":"c","lines":[]}`:                "lines is missing or empty",
		`{"customer_id":"c","lines":null}`:              "lines is missing or empty",
		`{"customer_id":"c","lines":{}}`:                "/lines: a JSON object is not allowed here",
		`{"customer_id":"c","lines":[` + line + `,{}]}`: "lines[1].sku is missing or empty",
		`{"customer_id":"c","lines":[{"sku":"s","unit_price":{"amount":"1","currency":"EUR"}}]}`:                                    "lines[0].quantity is missing",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":0,"unit_price":{"amount":"1","currency":"EUR"}}]}`:                       "lines[0].quantity 0 is outside 1..9223372036854775807",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":1.0,"unit_price":{"amount":"1","currency":"EUR"}}]}`:                     "lines[0].quantity 1.0 is not a JSON integer",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":1}]}`:                                                                    "lines[0].unit_price is missing",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":1,"unit_price":{"amount":"0.001","currency":"EUR"}}]}`:                   `lines[0].unit_price: amount "0.001" in currency "EUR": it is not a whole number`,
		`{"customer_id":"c","lines":[` + line + `,{"sku":"s","quantity":1,"unit_price":{"amount":"1","currency":"JPY"}}]}`:          "lines[1].unit_price is in JPY, and lines[0].unit_price in EUR: an order has one currency",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":9223372036854775807,"unit_price":{"amount":"0.02","currency":"EUR"}}]}`:  "lines[0]: with 9223372036854775807 × 0.02 EUR, the total's minor units do not fit into 64 bits",
		`{"customer_id":"c","total":{"amount":"1","currency":"EUR"}}`:                                                               "lines is missing or empty",
		`{"customer_id":"c","lines":[{"sku":"` + strings.Repeat("s", 201) + `","quantity":1}]}`:                                     "lines[0].sku has 201 bytes, at most 200 are allowed",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":1,"quantity":2,"unit_price":{"amount":"1","currency":"EUR"}}]}`:          "duplicate key at /data/lines/0/quantity",
		`{"customer_id":"c","lines":[{"sku":"s","quantity":12345678901234567890,"unit_price":{"amount":"0.00","currency":"EUR"}}]}`: "lines[0].quantity 12345678901234567890 is outside",
	} {
		_, err := EventDecoder{}.Decode(createdRecord("OrderCreated.v2", data))
		if err == nil || !strings.Contains(err.Error(), detail) {
			t.Errorf("%s: %v, want %q", data, err, detail)
		}
	}
}
