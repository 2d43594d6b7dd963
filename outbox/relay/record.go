package relay

import (
	"fmt"
	"strconv"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// Record is what is published: the order's ID as key decides the partition.
type Record struct {
	Key     []byte
	Value   []byte
	Headers []projection.Header
}

// Format is how events are written.
type Format string

// The formats.
const (
	// JSON is the plain envelope, as it is stored.
	JSON Format = "json"
	// CloudEvents is version 1.0 in Kafka's binary mode: the attributes are
	// headers, the value is the event's data.
	CloudEvents Format = "cloudevents"
)

// Formats lists every format.
func Formats() []Format { return []Format{JSON, CloudEvents} }

// Encoder makes records of messages.
type Encoder struct {
	Format Format
	Source string // where events come from, for CloudEvents: a URI reference
}

// Encode makes a message's record, the same bytes each time. The error is a *Refusal when no
// consumer could read it. An event type that is unknown here is nothing to refuse: its consumers may know it.
func (e Encoder) Encode(m *Message) (Record, error) {
	r := Record{Key: []byte(m.OrderID), Value: m.Payload}
	envelope, err := projection.JSONDecoder{}.Decode(&projection.Record{Key: r.Key, Value: m.Payload})
	if err == nil && (envelope.EventID != m.EventID || envelope.Type != m.Type || envelope.Version != m.Version) {
		err = fmt.Errorf("the payload is event %q, %s, version %d, and its row says %q, %s, version %d",
			envelope.EventID, envelope.Type, envelope.Version, m.EventID, m.Type, m.Version)
	}
	if err != nil {
		return Record{}, &Refusal{Reason: Invalid, Err: err}
	}
	header := func(name, value string) {
		r.Headers = append(r.Headers, projection.Header{Key: name, Value: []byte(value)})
	}
	if e.Format == CloudEvents {
		r.Headers = make([]projection.Header, 0, 10)
		header("ce_specversion", "1.0")
		header("ce_id", envelope.EventID)
		header("ce_type", envelope.Type)
		header("ce_source", e.Source)
		header("ce_subject", envelope.OrderID)
		header("ce_time", envelope.OccurredAt.Format(time.RFC3339Nano))
		header("ce_orderversion", strconv.FormatInt(envelope.Version, 10))
		header("content-type", "application/json")
		r.Value = envelope.Data
	}
	if m.TraceParent != "" {
		header("traceparent", m.TraceParent)
	}
	if m.TraceState != "" {
		header("tracestate", m.TraceState)
	}
	return r, nil
}
