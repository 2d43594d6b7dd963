package notifications

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// Message is what is sent: the same key and the same bytes in every attempt.
type Message struct {
	Key  string // idempotency key
	Body string // JSON
}

// TypePaid is the type of the message about a payment.
const TypePaid = "order.paid"

// body is a message's JSON.
type body struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it happened
	Data      bodyData  `json:"data"`
}

type bodyData struct {
	EventID    string     `json:"event_id"`
	OrderID    string     `json:"order_id"`
	PaymentID  string     `json:"payment_id"`
	CustomerID string     `json:"customer_id,omitempty"`
	Amount     bodyAmount `json:"amount"`
}

type bodyAmount struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// messageOf writes the message about a payment.
func messageOf(e *effects.Event, paid order.Paid) (Message, error) {
	encoded, err := json.Marshal(body{
		Type: TypePaid, Timestamp: e.OccurredAt,
		Data: bodyData{
			EventID: e.EventID, OrderID: e.OrderID, PaymentID: paid.PaymentID, CustomerID: paid.CustomerID,
			Amount: bodyAmount{paid.Amount.Amount(), paid.Amount.Currency},
		},
	})
	if err != nil {
		return Message{}, fmt.Errorf("writing the message: %w", err)
	}
	return Message{Key: KeyOf(e.EventID), Body: string(encoded)}, nil
}

const hashedKey = "sha256-"

// KeyOf is the idempotency key of an event's notification: the event ID itself where that can be a header
// and a part of a URL, else its hash.
func KeyOf(eventID string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if eventID != "" && strings.Trim(eventID, plain) == "" && strings.Trim(eventID, ".") != "" && !strings.HasPrefix(eventID, hashedKey) {
		return eventID
	}
	sum := sha256.Sum256([]byte(eventID))
	return hashedKey + hex.EncodeToString(sum[:])
}
