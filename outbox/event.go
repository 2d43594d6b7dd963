package outbox

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/orderprojector/orderprojector/domain/order"
)

type money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

func encodeMoney(m order.Money) money { return money{Amount: m.Amount(), Currency: m.Currency} }

// EncodeEvent writes a domain event in version 1 of its schema: its type as
// written ("OrderPaid.v1") and its data. Money is exact.
func EncodeEvent(e order.Event) (typ string, data []byte, err error) {
	var body any
	switch e := e.(type) {
	case order.Created:
		body = struct {
			CustomerID string `json:"customer_id"`
			Total      money  `json:"total"`
		}{e.CustomerID, encodeMoney(e.Total)}
	case order.Amended:
		body = struct {
			Total money `json:"total"`
		}{encodeMoney(e.Total)}
	case order.Paid:
		body = struct {
			PaymentID  string `json:"payment_id"`
			CustomerID string `json:"customer_id,omitzero"`
			Amount     money  `json:"amount"`
		}{e.PaymentID, e.CustomerID, encodeMoney(e.Amount)}
	case order.Packed, order.Delivered:
		body = struct{}{}
	case order.Shipped:
		body = struct {
			Carrier        string `json:"carrier"`
			TrackingNumber string `json:"tracking_number"`
		}{e.Carrier, e.TrackingNumber}
	case order.Cancelled:
		body = reason{e.Reason}
	case order.Returned:
		body = reason{e.Reason}
	case order.Refunded:
		body = struct {
			RefundID   string `json:"refund_id"`
			CustomerID string `json:"customer_id,omitzero"`
			Amount     money  `json:"amount"`
		}{e.RefundID, e.CustomerID, encodeMoney(e.Amount)}
	default:
		return "", nil, fmt.Errorf("outbox: %T is not an event of an order", e)
	}
	if data, err = json.Marshal(body); err != nil {
		return "", nil, fmt.Errorf("outbox: data of %s: %w", e.Type(), err)
	}
	return string(e.Type()) + ".v1", data, nil
}

type reason struct {
	Reason string `json:"reason"`
}
