package projection

import "fmt"

// Decoder reads the event out of a record. Decode is safe for concurrent use and keeps no
// reference to the record's bytes other than Envelope.Data.
type Decoder interface {
	// Decode returns the envelope, or a *DecodeError that says why the record is
	// invalid. A record of an unknown type or schema version is not an error: its Event is nil.
	Decode(r *Record) (Envelope, error)
}

// EventDecoder reads events in every format of the contract: plain JSON, and CloudEvents 1.0 in
// binary and in structured mode. The headers choose, so that a plain record is not slowed down.
type EventDecoder struct{}

// Decode implements Decoder.
func (EventDecoder) Decode(r *Record) (Envelope, error) {
	switch formatOf(r) {
	case formatBinary:
		return decodeBinary(r)
	case formatStructured:
		return decodeStructured(r)
	}
	if schemaID, framed := registryFrame(r.Value); framed {
		return Envelope{}, invalidf("%s", framedDetail(schemaID))
	}
	env, err := JSONDecoder{}.Decode(r)
	if err != nil {
		return Envelope{}, explainPlain(r, err)
	}
	return env, nil
}

// DecodeError says why a record is invalid, and what could be read of it all
// the same.
type DecodeError struct {
	Detail string // opens with the cause
	// OrderID, EventID and Version are what the body names, as far as it is readable
	// and names the order of the record's key; zero otherwise.
	OrderID string
	EventID string
	Version int64
}

func (e *DecodeError) Error() string { return "invalid event: " + e.Detail }

func invalidf(format string, args ...any) *DecodeError {
	return &DecodeError{Detail: fmt.Sprintf(format, args...)}
}

func framedDetail(schemaID uint32) string {
	return fmt.Sprintf("not JSON: the value begins with a schema registry frame (byte 0 and schema ID %d), which is not supported;"+
		" publish JSON without a frame, or CloudEvents", schemaID)
}

// explainPlain adds to why a plain record is invalid what its producer most likely meant.
func explainPlain(r *Record, err error) error {
	invalid, ok := isOneOf[*DecodeError](err)
	if !ok {
		return err
	}
	for i := range r.Headers {
		if r.Headers[i].Key == "__value_schema_id" {
			invalid.Detail += "; the header __value_schema_id says that a serializer of a schema registry wrote it: publish JSON or CloudEvents"
			return invalid
		}
	}
	if looksLikeCloudEvent(r.Value) {
		invalid.Detail += "; it looks like a CloudEvent, which needs the header content-type: application/cloudevents+json"
	}
	return invalid
}

// salvageRecord reads what it can of an invalid record, in whichever format.
func salvageRecord(r *Record, detail string) *DecodeError {
	switch formatOf(r) {
	case formatBinary:
		attributes, _ := readAttributes(r)
		return attributes.salvage(r, detail)
	case formatStructured:
		return salvageNamed(r, detail, structuredNames)
	}
	return salvage(r, detail)
}
