package outbox_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/outbox"
	"github.com/orderprojector/orderprojector/projection"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 123456789, time.FixedZone("", 7200))

// Every event comes back out of its payload as it went in, money exactly.
func TestPayloadIsWhatConsumersRead(t *testing.T) {
	t.Parallel()
	id := rapid.StringN(1, 40, 150).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
	rapid.Check(t, func(t *rapid.T) {
		money := order.Money{Minor: rapid.Int64Min(0).Draw(t, "minor"), Currency: rapid.SampledFrom([]string{"EUR", "JPY", "KWD", "CLF"}).Draw(t, "currency")}
		text := rapid.StringN(0, 200, 900).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }).Draw(t, "text")
		event := rapid.SampledFrom([]order.Event{
			order.Created{CustomerID: id.Draw(t, "customer"), Total: money}, order.Amended{Total: money},
			order.Paid{PaymentID: id.Draw(t, "payment"), Amount: money}, order.Paid{PaymentID: "p", Amount: money, CustomerID: "c"},
			order.Packed{}, order.Shipped{Carrier: id.Draw(t, "carrier"), TrackingNumber: "t"}, order.Delivered{},
			order.Cancelled{Reason: text}, order.Returned{Reason: text},
			order.Refunded{RefundID: "r", Amount: money}, order.Refunded{RefundID: "r", Amount: money, CustomerID: id.Draw(t, "payer")},
		}).Draw(t, "event")
		m, err := outbox.NewMessage(id.Draw(t, "order"), rapid.Int64Min(1).Draw(t, "version"), noon, event)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := m.Payload()
		if err != nil {
			t.Fatal(err)
		}
		got, err := projection.JSONDecoder{}.Decode(&projection.Record{Key: []byte(m.OrderID), Value: payload})
		if err != nil {
			t.Fatal(err)
		}
		want := projection.Envelope{EventID: m.EventID, OrderID: m.OrderID, Type: m.Type, Version: m.Version, OccurredAt: noon.UTC().Truncate(time.Microsecond), Event: event}
		got.Digest, got.Data = projection.Digest{}, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-stored +read:\n%s", diff)
		}
	})
}

func TestMessagesThatConsumersWouldRefuse(t *testing.T) {
	t.Parallel()
	good := outbox.Message{
		EventID: "e", OrderID: "o", Type: "OrderCreated.v1", Version: 1, OccurredAt: noon,
		Data: []byte(` {"customer_id":"c","total":{"amount":"1.00","currency":"EUR"},"more":1} `),
	}
	if payload, err := good.Payload(); err != nil || !json.Valid(payload) {
		t.Fatalf("a good message: %s, %v", payload, err)
	}
	for name, spoil := range map[string]func(*outbox.Message){
		"no event ID":               func(m *outbox.Message) { m.EventID = "" },
		"no order ID":               func(m *outbox.Message) { m.OrderID = "" },
		"a long order ID":           func(m *outbox.Message) { m.OrderID = strings.Repeat("o", 201) },
		"NUL in the order ID":       func(m *outbox.Message) { m.OrderID = "o\x00" },
		"an order ID that is bytes": func(m *outbox.Message) { m.OrderID = "o\xff" },
		"no type":                   func(m *outbox.Message) { m.Type = "" },
		"an unknown type":           func(m *outbox.Message) { m.Type = "OrderPayed.v1" },
		"an unknown version of it":  func(m *outbox.Message) { m.Type = "OrderCreated.v999" },
		"version 0":                 func(m *outbox.Message) { m.Version = 0 },
		"no time":                   func(m *outbox.Message) { m.OccurredAt = time.Time{} },
		"a time before 1970":        func(m *outbox.Message) { m.OccurredAt = time.Unix(-1, 0) },
		"no data":                   func(m *outbox.Message) { m.Data = nil },
		"data that is no object":    func(m *outbox.Message) { m.Data = []byte(`[]`) },
		"half an amount": func(m *outbox.Message) {
			m.Data = []byte(`{"customer_id":"c","total":{"amount":"1.005","currency":"EUR"}}`)
		},
		"data that leaves its place": func(m *outbox.Message) { m.Data = append(m.Data, `,"x":{}`...) },
		"two values":                 func(m *outbox.Message) { m.Data = append(m.Data, `{}`...) },
		"a second order ID":          func(m *outbox.Message) { m.Data = append(m.Data, `,"order_id":"p"`...) },
		"a trace of two lines":       func(m *outbox.Message) { m.TraceParent = "00-\n" },
		"a long trace":               func(m *outbox.Message) { m.TraceState = strings.Repeat("x", 513) },
	} {
		m := good
		m.Data = append([]byte(nil), good.Data...)
		spoil(&m)
		var invalid *outbox.InvalidError
		if payload, err := m.Payload(); !errors.As(err, &invalid) {
			t.Errorf("%s: %s, %v", name, payload, err)
		}
	}
}
