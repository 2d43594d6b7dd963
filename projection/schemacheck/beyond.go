package schemacheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// The rules that no JSON Schema can express, with the place that breaks them.

// beyond lists what they find in a plain event. name is that of its schema, empty when there is none.
func beyond(event map[string]any, name string) []Problem {
	var f finder
	f.identifier("/event_id", event["event_id"])
	f.identifier("/order_id", event["order_id"])
	f.identifier("/type", event["type"])
	f.integer("/version", event["version"])
	if text, ok := event["occurred_at"].(string); ok {
		if _, err := projection.ParseTime(text); err != nil {
			f.find("/occurred_at", "an RFC 3339 time with zone, in the years 1970 to 9999 UTC", text)
		}
	}
	data, _ := event["data"].(map[string]any)
	if name == "" || data == nil {
		return f.problems
	}
	for _, field := range []string{"customer_id", "payment_id", "refund_id", "carrier", "tracking_number"} {
		f.identifier("/data/"+field, data[field])
	}
	if reason, ok := data["reason"].(string); ok && len(reason) > projection.MaxReasonBytes {
		f.find("/data/reason", fmt.Sprintf("at most %d bytes", projection.MaxReasonBytes), fmt.Sprintf("%d bytes", len(reason)))
	}
	switch {
	case strings.HasPrefix(name, string(order.TypePaid)+"."), strings.HasPrefix(name, string(order.TypeRefunded)+"."):
		f.money("/data/amount", data["amount"])
	case name == string(order.TypeCreated)+".v2":
		f.lines("/data/lines", data["lines"])
	default:
		f.money("/data/total", data["total"])
	}
	return f.problems
}

// finder collects problems of values that have the right type; the others are the schema's.
type finder struct{ problems []Problem }

func (f *finder) find(path, expected string, found any) {
	text, isText := found.(string)
	if !isText || !strings.HasSuffix(text, " bytes") {
		text = show(found)
	}
	f.problems = append(f.problems, Problem{path, expected, text})
}

func (f *finder) identifier(path string, value any) {
	if text, ok := value.(string); ok && len(text) > projection.MaxIDBytes {
		f.find(path, fmt.Sprintf("at most %d bytes", projection.MaxIDBytes), fmt.Sprintf("%d bytes", len(text)))
	}
}

func (f *finder) integer(path string, value any) {
	if number, ok := value.(json.Number); ok && strings.ContainsAny(number.String(), ".eE") {
		f.find(path, "a JSON integer, without fraction or exponent", number)
	}
}

func (f *finder) money(path string, value any) (money order.Money, ok bool) {
	object, _ := value.(map[string]any)
	currency, isText := object["currency"].(string)
	amount := object["amount"]
	text, isAmount := amount.(string)
	if number, isNumber := amount.(json.Number); isNumber {
		text, isAmount = number.String(), true
	}
	if !isText || !isAmount {
		return money, false
	}
	money, err := order.ParseMoney(text, currency)
	var refused *order.MoneyError
	if errors.As(err, &refused) {
		f.problems = append(f.problems, Problem{path, "exact money of an ISO 4217 currency", show(object) + ": " + refused.Reason})
	}
	return money, err == nil
}

func (f *finder) lines(path string, value any) {
	lines, _ := value.([]any)
	total, currency, whole := new(big.Int), "", true
	for i, value := range lines {
		line, _ := value.(map[string]any)
		at := fmt.Sprintf("%s/%d", path, i)
		f.identifier(at+"/sku", line["sku"])
		f.integer(at+"/quantity", line["quantity"])
		price, ok := f.money(at+"/unit_price", line["unit_price"])
		number, _ := line["quantity"].(json.Number)
		quantity, isInteger := new(big.Int).SetString(number.String()[:min(len(number), maxDigits+1)], 10)
		if !ok || !isInteger || len(number) > maxDigits {
			whole = false
			continue
		}
		if currency == "" {
			currency = price.Currency
		}
		if price.Currency != currency {
			f.find(at+"/unit_price/currency", "the currency of the first line, "+currency+": an order has one", price.Currency)
		}
		total.Add(total, quantity.Mul(quantity, big.NewInt(price.Minor)))
	}
	if whole && !total.IsInt64() {
		f.find(path, "a total whose minor units fit into 64 bits", total.String()+" minor units")
	}
}
