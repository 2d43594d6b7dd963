package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// Message is one event of an order, to be published.
type Message struct {
	// EventID identifies the event for ever, also when it is published again.
	EventID string
	OrderID string
	// Type is the event's name and schema version, such as "OrderPaid.v1".
	Type string
	// Version is the order's own version that the event makes: 1 for the first
	// event, and one more for each.
	Version int64
	// OccurredAt is when it happened, kept to the microsecond.
	OccurredAt time.Time
	// Data is the event's data, a JSON object.
	Data []byte
	// TraceParent and TraceState are the W3C trace context that the event's record
	// carries as headers; empty for none.
	TraceParent string
	TraceState  string
}

// NewMessage makes the message of a domain event, with a new event ID (a
// UUIDv7). It fails only when there is no randomness for an ID, or with an event
// that is none of package order's.
func NewMessage(orderID string, version int64, occurredAt time.Time, e order.Event) (Message, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Message{}, fmt.Errorf("making an event ID: %w", err)
	}
	typ, data, err := EncodeEvent(e)
	if err != nil {
		return Message{}, err
	}
	return Message{EventID: id.String(), OrderID: orderID, Type: typ, Version: version, OccurredAt: occurredAt, Data: data}, nil
}

// InvalidError says why a message cannot be stored: consumers would refuse its
// event. Trying again does not help.
type InvalidError struct {
	Message Message
	Err     error
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("outbox: message of order %q, version %d: %v", e.Message.OrderID, e.Message.Version, e.Err)
}

func (e *InvalidError) Unwrap() error { return e.Err }

// Payload returns the event as consumers get it, the whole envelope as JSON. The
// error is an *InvalidError when they would refuse it.
func (m Message) Payload() ([]byte, error) {
	payload, err := m.encode()
	if err == nil {
		err = check(payload, m)
	}
	if err != nil {
		return nil, &InvalidError{Message: m, Err: err}
	}
	return payload, nil
}

func (m Message) encode() ([]byte, error) {
	if m.OccurredAt.IsZero() {
		return nil, errors.New("occurred_at is missing")
	}
	var err error
	var b []byte
	text := func(name, value string) {
		b = append(b, name...)
		var quoteErr error
		if b, quoteErr = jsontext.AppendQuote(b, value); err == nil && quoteErr != nil {
			err = fmt.Errorf("%s%w", name, quoteErr)
		}
	}
	text(`{"event_id":`, m.EventID)
	text(`,"order_id":`, m.OrderID)
	text(`,"type":`, m.Type)
	b = strconv.AppendInt(append(b, `,"version":`...), m.Version, 10)
	text(`,"occurred_at":`, m.OccurredAt.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano))
	b = append(b, `,"data":`...)
	b = append(b, bytes.TrimSpace(m.Data)...)
	return append(b, '}'), err
}

// check decodes the payload the way consumers do.
func check(payload []byte, m Message) error {
	decoded, err := projection.JSONDecoder{}.Decode(&projection.Record{Key: []byte(m.OrderID), Value: payload})
	switch {
	case err != nil:
		return err
	case decoded.Event == nil:
		return fmt.Errorf("event type %q is none that this release knows: consumers would hold its order back", m.Type)
	// Data that closes the envelope itself would smuggle members in.
	case decoded.EventID != m.EventID || decoded.Type != m.Type || decoded.Version != m.Version || len(decoded.Data) != len(bytes.TrimSpace(m.Data)):
		return errors.New("the data is not one JSON value")
	}
	return checkTrace(m)
}

// checkTrace keeps headers short and printable; what they mean is the tracer's business.
func checkTrace(m Message) error {
	for name, value := range map[string]string{"traceparent": m.TraceParent, "tracestate": m.TraceState} {
		if len(value) > 512 {
			return fmt.Errorf("%s has %d bytes, at most 512 are allowed", name, len(value))
		}
		for _, r := range value {
			if r < ' ' || r > '~' {
				return fmt.Errorf("%s is not printable ASCII", name)
			}
		}
	}
	return nil
}
