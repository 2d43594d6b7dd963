package projectiontest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/orderprojector/orderprojector/projection"
)

// CloudEvent is an order event that the official SDK of CloudEvents writes.
type CloudEvent struct {
	EventID, OrderID, Type string
	Version                int64
	OccurredAt             time.Time
	Data                   string // JSON
}

// event makes the SDK's own event. Its integers have 32 bits, so a larger version becomes a string, which is what it is in a header.
func (c CloudEvent) event() (event.Event, error) {
	e := event.New()
	e.SetID(c.EventID)
	e.SetSource("/test/orders")
	e.SetType(c.Type)
	e.SetSubject(c.OrderID)
	e.SetTime(c.OccurredAt)
	e.SetExtension("orderversion", fmt.Sprint(c.Version))
	if int64(int32(c.Version)) == c.Version {
		e.SetExtension("orderversion", int32(c.Version))
	}
	if err := e.SetData(event.ApplicationJSON, []byte(c.Data)); err != nil {
		return e, err
	}
	return e, e.Validate()
}

// Binary writes the event in binary mode, headers as in the Kafka binding.
func (c CloudEvent) Binary(ctx context.Context) (projection.Record, error) {
	return c.write(binding.WithForceBinary(ctx))
}

// Structured writes the event in structured mode.
func (c CloudEvent) Structured(ctx context.Context) (projection.Record, error) {
	return c.write(binding.WithForceStructured(ctx))
}

func (c CloudEvent) write(ctx context.Context) (projection.Record, error) {
	e, err := c.event()
	if err != nil {
		return projection.Record{}, fmt.Errorf("making the event: %w", err)
	}
	w := &recordWriter{record: projection.Record{Key: []byte(c.OrderID)}}
	if _, err := binding.Write(ctx, binding.ToMessage(&e), w, w); err != nil {
		return projection.Record{}, fmt.Errorf("writing the event: %w", err)
	}
	return w.record, nil
}

// recordWriter is the Kafka binding: it takes what the SDK wants to write.
type recordWriter struct{ record projection.Record }

func (w *recordWriter) header(key, value string) {
	w.record.Headers = append(w.record.Headers, projection.Header{Key: key, Value: []byte(value)})
}

// SetStructuredEvent implements binding.StructuredWriter.
func (w *recordWriter) SetStructuredEvent(_ context.Context, f format.Format, body io.Reader) (err error) {
	w.header("content-type", f.MediaType())
	w.record.Value, err = io.ReadAll(body)
	return err
}

// Start implements binding.BinaryWriter.
func (w *recordWriter) Start(context.Context) error { return nil }

// End implements binding.BinaryWriter.
func (w *recordWriter) End(context.Context) error { return nil }

// SetData implements binding.BinaryWriter.
func (w *recordWriter) SetData(data io.Reader) (err error) {
	w.record.Value, err = io.ReadAll(data)
	return err
}

// SetAttribute implements binding.BinaryWriter.
func (w *recordWriter) SetAttribute(attribute spec.Attribute, value any) error {
	text, err := types.Format(value)
	if err != nil || value == nil {
		return err
	}
	if attribute.Kind() == spec.DataContentType {
		w.header("content-type", text)
		return nil
	}
	w.header("ce_"+attribute.Name(), text)
	return nil
}

// SetExtension implements binding.BinaryWriter.
func (w *recordWriter) SetExtension(name string, value any) error {
	text, err := types.Format(value)
	if err == nil {
		w.header("ce_"+name, text)
	}
	return err
}

// ReadCloudEvent reads a record as the official SDK does, and checks it by the SDK's rules.
func ReadCloudEvent(r *projection.Record) (event.Event, error) {
	e := event.New()
	for _, h := range r.Headers {
		if h.Key == "content-type" && format.IsFormat(string(h.Value)) {
			f := format.Lookup(string(h.Value))
			if f == nil {
				return e, fmt.Errorf("no format %s", h.Value)
			}
			if err := f.Unmarshal(r.Value, &e); err != nil {
				return e, fmt.Errorf("reading %s: %w", r.Value, err)
			}
			return e, e.Validate()
		}
	}
	for _, h := range r.Headers {
		name, isAttribute := strings.CutPrefix(h.Key, "ce_")
		var err error
		switch {
		case h.Key == "content-type":
			e.SetDataContentType(string(h.Value))
		case isAttribute && spec.V1.Attribute(name) != nil:
			err = spec.V1.Attribute(name).Set(e.Context, string(h.Value))
		case isAttribute:
			e.SetExtension(name, string(h.Value))
		}
		if err != nil {
			return e, fmt.Errorf("header %s: %w", h.Key, err)
		}
	}
	e.DataEncoded = bytes.Clone(r.Value)
	return e, e.Validate()
}
