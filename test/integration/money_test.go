//go:build unix

package integration_test

import (
	"fmt"
	"testing"
)

// Amounts reach the table exactly, however they are written, or not at all (B19).
func TestMoneyIsExact(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	type sum struct {
		literal, currency string
		minor             int64 // -1: refused
		shown             string
	}
	sums := []sum{
		{`19.99`, "EUR", 1999, "19.99"}, {`"19.99"`, "EUR", 1999, "19.99"}, {`1.999e1`, "EUR", 1999, "19.99"}, {`"1.999e1"`, "EUR", 1999, "19.99"},
		{`1999e-2`, "EUR", 1999, "19.99"}, {`19.990000`, "EUR", 1999, "19.99"}, {`0.29`, "EUR", 29, "0.29"}, {`"1.15"`, "EUR", 115, "1.15"},
		{`"12345678901.00"`, "EUR", 1234567890100, "12345678901.00"}, {`12345678901.00`, "EUR", 1234567890100, "12345678901.00"},
		{`"92233720368547758.07"`, "EUR", 9223372036854775807, "92233720368547758.07"}, {`92233720368547758.07`, "EUR", 9223372036854775807, "92233720368547758.07"},
		{`90071992547409.93`, "EUR", 9007199254740993, "90071992547409.93"}, {`0`, "EUR", 0, "0.00"}, {`-0.00`, "EUR", 0, "0.00"},
		{`"1000"`, "JPY", 1000, "1000"}, {`1e3`, "JPY", 1000, "1000"}, {`"1.234"`, "KWD", 1234, "1.234"}, {`1.1`, "KWD", 1100, "1.100"},
		{`19.995`, "EUR", -1, ""}, {`"19.995"`, "EUR", -1, ""}, {`"92233720368547758.08"`, "EUR", -1, ""}, {`"NaN"`, "EUR", -1, ""},
		{`"Infinity"`, "EUR", -1, ""}, {`-0.01`, "EUR", -1, ""}, {`"1.2345"`, "KWD", -1, ""}, {`1e-1`, "JPY", -1, ""}, {`1e400`, "EUR", -1, ""},
	}
	for i, c := range sums {
		id := fmt.Sprintf("o-%03d", i)
		money := fmt.Sprintf(`{"amount":%s,"currency":%q}`, c.literal, c.currency)
		s.produce(
			record(id, event(id, 1, "OrderCreated.v1", `{"customer_id":"9007199254740993","total":`+money+`}`)),
			record(id, event(id, 2, "OrderPaid.v1", `{"payment_id":"p-1","amount":`+money+`}`)))
	}
	// 0.1 + 0.2 over two events is 0.3, and not a cent is left to refund.
	refund := func(version int64, id, amount string) string {
		return event("sum", version, "OrderRefunded.v1", `{"refund_id":"`+id+`","amount":{"amount":`+amount+`,"currency":"EUR"}}`)
	}
	s.produce(
		record("sum", event("sum", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":0.3,"currency":"EUR"}}`)),
		record("sum", event("sum", 2, "OrderPaid.v1", `{"payment_id":"p-1","amount":{"amount":"0.30","currency":"EUR"}}`)),
		record("sum", refund(3, "r-1", `0.1`)), record("sum", refund(4, "r-2", `0.2`)), record("sum", refund(5, "r-3", `0.01`)))
	s.awaitDrained()
	s.judge()

	for i, c := range sums {
		id := fmt.Sprintf("o-%03d", i)
		got := ask[string](s, `SELECT coalesce((SELECT format('%s %s %s %s %s', state, total_minor, paid_minor, currency, customer_id)
			FROM orders WHERE order_id = $1), (SELECT string_agg(DISTINCT reason, ',') FROM dead_letters WHERE order_id = $1))`, id)
		want := "invalid"
		if c.minor >= 0 {
			want = fmt.Sprintf("paid %d %d %s 9007199254740993", c.minor, c.minor, c.currency)
		}
		if got != want {
			t.Errorf("%s %s: %s, wanted %s", c.literal, c.currency, got, want)
		}
	}
	if got := ask[string](s, `SELECT format('%s v%s %s/%s', state, version, refunded_minor, paid_minor) FROM orders WHERE order_id = 'sum'`); got != "refunded v4 30/30" {
		t.Errorf("0.1 + 0.2 of 0.3 refunded: %s", got)
	}
	if got := ask[string](s, `SELECT reason FROM dead_letters WHERE order_id = 'sum'`); got != "illegal" {
		t.Errorf("a cent too much: %s", got)
	}
	var shown []struct {
		OrderID string `json:"order_id"`
		Total   string `json:"total"`
		Paid    string `json:"paid"`
	}
	s.commandJSON(&shown, "orders", "list")
	decimals := map[string]string{}
	for _, o := range shown {
		decimals[o.OrderID] = o.Total + " " + o.Paid
	}
	for i, c := range sums {
		if id := fmt.Sprintf("o-%03d", i); c.minor >= 0 && decimals[id] != c.shown+" "+c.shown {
			t.Errorf("%s %s is shown as %q, wanted %q", c.literal, c.currency, decimals[id], c.shown)
		}
	}
}
