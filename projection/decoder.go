package projection

import "fmt"

// Decoder reads the event out of a record. Every envelope format is one
// Decoder. Decode is safe for concurrent use and keeps no reference to the
// record's bytes other than Envelope.Data.
type Decoder interface {
	// Decode returns the envelope, or a *DecodeError that says why the record is
	// invalid. A record of an unknown type or schema version is not an error: its Event is nil.
	Decode(r *Record) (Envelope, error)
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
