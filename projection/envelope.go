package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Limits of the event contract, in bytes.
const (
	MaxIDBytes     = 200  // event ID, order ID, type and every other identifier
	MaxReasonBytes = 1000 // free text in an event
)

// DigestSize is the size of a Digest in bytes.
const DigestSize = 16

// Digest identifies the bytes of a record: the first 16 bytes of their
// SHA-256. Equal digests mean equal records.
type Digest [DigestSize]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// DigestOf returns the digest of a record's value.
func DigestOf(value []byte) Digest {
	sum := sha256.Sum256(value)
	return Digest(sum[:DigestSize])
}

// Envelope is one decoded event.
type Envelope struct {
	EventID    string
	OrderID    string
	Type       string // as written, e.g. "OrderPaid.v1"
	Version    int64  // of the order, from 1
	OccurredAt time.Time
	Digest     Digest
	// Event is nil when this program does not know the type or its schema
	// version; the envelope is whole nevertheless.
	Event order.Event
	// Data is the event's data as written.
	Data []byte
	// Unreadable says why a record that should be compared cannot be read again. The other fields are then empty.
	Unreadable string
}

// SplitType separates a type as written into name and schema version: no
// suffix means version 1.
func SplitType(written string) (name order.Type, schemaVersion int) {
	dot := strings.LastIndex(written, ".v")
	if dot > 0 {
		digits := written[dot+2:]
		if n, err := strconv.Atoi(digits); err == nil && n >= 1 && digits[0] >= '1' && digits[0] <= '9' {
			return order.Type(written[:dot]), n
		}
	}
	return order.Type(written), 1
}
