package generate

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

type kind uint8

const (
	created kind = iota
	amended
	paid
	packed
	shipped
	delivered
	cancelled
	returned
	refunded
)

var kindNames = [...]string{
	"OrderCreated", "OrderAmended", "OrderPaid", "OrderPacked", "OrderShipped", "OrderDelivered", "OrderCancelled",
	"OrderReturned", "OrderRefunded",
}

type currency struct {
	code   string
	places int
}

var currencies = []currency{{"EUR", 2}, {"USD", 2}, {"GBP", 2}, {"JPY", 0}, {"KWD", 3}, {"CHF", 2}}

// event is one event before it is written.
type event struct {
	id       [36]byte
	orderID  string
	kind     kind
	typeText string // instead of the kind's own type, when not empty
	version  int64
	at       time.Time

	customer  string
	reference string // payment, refund or tracking number
	label     string // carrier or reason
	minor     int64
	currency  currency
	asNumber  bool // the amount is a JSON number
	extra     bool // the data has a member that nobody asked for
	lines     bool // the total is written as the lines it is made of: schema version 2
}

// newEventID makes a UUIDv7: it sorts by time and is unique by 74 random bits.
func newEventID(rng *rand.Rand, at time.Time) (id [36]byte) {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(at.UnixMilli())<<16|rng.Uint64()&0x0fff|0x7000)
	binary.BigEndian.PutUint64(raw[8:], rng.Uint64()>>2|0x8000000000000000)
	hex.Encode(id[0:8], raw[0:4])
	id[8] = '-'
	hex.Encode(id[9:13], raw[4:6])
	id[13] = '-'
	hex.Encode(id[14:18], raw[6:8])
	id[18] = '-'
	hex.Encode(id[19:23], raw[8:10])
	id[23] = '-'
	hex.Encode(id[24:36], raw[10:16])
	return id
}
