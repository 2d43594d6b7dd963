package projection

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
)

// The fast path of JSONDecoder. It accepts only what needs no second thought:
// printable ASCII without escapes, the known keys, the known types, UTC times, few keys to an object.
// Whatever else there is, also every mistake, it leaves to the strict decoder, so it can only be
// quicker and never laxer; a test and a fuzz target hold the two against each other. Decoding was
// the largest part of the program's own time per event, and this is five times as fast.

// Bounds of what the fast path looks at.
const (
	fastFields = 8 // keys of one object
	fastDepth  = 8
)

type fastField struct {
	key, value []byte // value with its quotes, if any
}

type fastObject struct {
	fields [fastFields]fastField
	n      int
	// outline says that values which are objects or arrays are looked at by whoever takes them out:
	// only their end is found.
	outline bool
}

// get returns a field's value, or nil.
func (o *fastObject) get(key string) []byte {
	for i := range o.n {
		if string(o.fields[i].key) == key {
			return o.fields[i].value
		}
	}
	return nil
}

// text returns the content of a string that is an identifier by the contract.
func (o *fastObject) text(key string) (text []byte, ok bool) {
	v := o.get(key)
	if len(v) < 3 || len(v) > MaxIDBytes+2 || v[0] != '"' {
		return nil, false
	}
	return v[1 : len(v)-1], true
}

// parse reads an object that begins at b[i] and returns the index behind it, or -1.
func (o *fastObject) parse(b []byte, i, depth int) int {
	if i >= len(b) || b[i] != '{' || depth > fastDepth {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		begin := i
		if i = skipString(b, i); i < 0 || o.n == fastFields {
			return -1
		}
		key := b[begin+1 : i-1]
		for j := range o.n {
			if bytes.Equal(o.fields[j].key, key) {
				return -1
			}
		}
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return -1
		}
		i = skipSpace(b, i+1)
		begin = i
		if o.outline && i < len(b) && (b[i] == '{' || b[i] == '[') {
			i = skipBrackets(b, i)
		} else {
			i = skipValue(b, i, depth)
		}
		if i < 0 {
			return -1
		}
		o.fields[o.n] = fastField{key, b[begin:i]}
		o.n++
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return i + 1
		default:
			return -1
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind a string of printable ASCII without escapes.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i+8 <= len(b); i += 8 {
		if stops := stopsIn(binary.LittleEndian.Uint64(b[i:])); stops != 0 {
			if i += bits.TrailingZeros64(stops) / 8; b[i] == '"' {
				return i + 1
			}
			return -1
		}
	}
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ' || c > '~' || c == '\\':
			return -1
		}
	}
	return -1
}

// stopsIn looks at eight bytes at once for a quote, or one that skipString refuses. The lowest bit that is set is in the
// first such byte; those above it may be wrong. (Each term finds its bytes by the borrow of a subtraction.)
func stopsIn(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, backslash, del := w^ones*'"', w^ones*'\\', w^ones*0x7f
	return ((w-ones*' ')&^w | (quote-ones)&^quote | (backslash-ones)&^backslash | (del-ones)&^del | w) & tops
}

// skipBrackets returns the index behind the bracket that closes the one at b[i].
func skipBrackets(b []byte, i int) int {
	for open := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				return i + 1
			}
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			i--
		}
	}
	return -1
}

func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		var inner fastObject
		return inner.parse(b, i, depth+1)
	case c == '[':
		return skipArray(b, i, depth+1)
	case c >= '0' && c <= '9':
		return skipNumber(b, i)
	case c == '-' && i+1 < len(b) && b[i+1] >= '0' && b[i+1] <= '9':
		return skipNumber(b, i+1)
	}
	for _, literal := range [...]string{"true", "false", "null"} {
		if end := i + len(literal); end <= len(b) && string(b[i:end]) == literal {
			return end // what follows is looked at by whoever asked
		}
	}
	return -1
}

func skipArray(b []byte, i, depth int) int {
	if depth > fastDepth {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case ']':
			return i + 1
		default:
			return -1
		}
	}
}

// skipNumber returns the index behind a plain number without sign and exponent.
func skipNumber(b []byte, i int) int {
	begin := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if b[begin] == '0' && i > begin+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		fraction := i + 1
		for i = fraction; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		}
		if i == fraction {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		return -1
	}
	return i
}

type fastType struct {
	written string
	name    order.Type
}

// fastTypes are the types as producers write them: version 1, with and without its suffix.
var fastTypes = func() map[string]fastType {
	types := make(map[string]fastType)
	for _, name := range order.Types() {
		for _, written := range []string{string(name), string(name) + ".v1"} {
			types[written] = fastType{written, name}
		}
	}
	return types
}()

// decodeFast returns false for everything that is the strict decoder's.
func decodeFast(r *Record) (env Envelope, ok bool) {
	envelope, data := fastObject{outline: true}, fastObject{} // all six of the envelope's values are looked at below
	if end := envelope.parse(r.Value, skipSpace(r.Value, 0), 0); end < 0 || skipSpace(r.Value, end) != len(r.Value) || envelope.n != 6 {
		return env, false
	}
	orderID, ok1 := envelope.text("order_id")
	eventID, ok2 := envelope.text("event_id")
	written, ok3 := envelope.text("type")
	at, ok4 := fastTime(envelope.get("occurred_at"))
	version, ok5 := fastVersion(envelope.get("version"))
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || r.Key != nil && !bytes.Equal(r.Key, orderID) {
		return env, false
	}
	known, ok := fastTypes[string(written)]
	if !ok {
		return env, false
	}
	env.Data = envelope.get("data")
	if data.parse(env.Data, 0, 0) != len(env.Data) || len(env.Data) == 0 {
		return env, false
	}
	if env.Event, ok = fastEvent(known.name, &data); !ok {
		return env, false
	}
	ids := string(append(append(make([]byte, 0, 2*MaxIDBytes), eventID...), orderID...)) // one allocation for both
	env.EventID, env.OrderID = ids[:len(eventID)], ids[len(eventID):]
	env.Type, env.Version, env.OccurredAt, env.Digest = known.written, version, at, DigestOf(r.Value)
	return env, true
}

func fastVersion(v []byte) (version int64, ok bool) {
	if len(v) == 0 || len(v) > 18 || v[0] < '1' || v[0] > '9' {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		version = version*10 + int64(c-'0')
	}
	return version, true
}

// fastTime reads "yyyy-mm-ddThh:mm:ss.ffffffZ", with up to nine digits of fraction or none.
func fastTime(v []byte) (t time.Time, ok bool) {
	const shape = `"dddd-dd-ddTdd:dd:dd`
	if len(v) < len(shape)+2 || len(v) > len(shape)+12 || string(v[len(v)-2:]) != `Z"` {
		return t, false
	}
	for i := range len(shape) {
		if want, got := shape[i], v[i]; want == 'd' && (got < '0' || got > '9') || want != 'd' && got != want {
			return t, false
		}
	}
	number := func(from, to int) (n int) {
		for _, c := range v[from:to] {
			n = n*10 + int(c-'0')
		}
		return n
	}
	nanos := 0
	if fraction := v[len(shape) : len(v)-2]; len(fraction) > 0 {
		if fraction[0] != '.' || len(fraction) < 2 {
			return t, false
		}
		scale := 100_000_000
		for _, c := range fraction[1:] {
			if c < '0' || c > '9' {
				return t, false
			}
			nanos += int(c-'0') * scale
			scale /= 10
		}
	}
	year, month, day := number(1, 5), number(6, 8), number(9, 11)
	hour, minute, second := number(12, 14), number(15, 17), number(18, 20)
	if year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		return t, false
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, nanos/1000*1000, time.UTC)
	return t, t.Day() == day // no 31st of April
}

func fastMoney(o *fastObject, field string) (order.Money, bool) {
	v := o.get(field)
	var money fastObject
	if len(v) == 0 || money.parse(v, 0, 1) != len(v) {
		return order.Money{}, false
	}
	amount := money.get("amount")
	currency, ok := money.text("currency")
	if !ok || len(amount) == 0 || amount[0] == '{' {
		return order.Money{}, false
	}
	if amount[0] == '"' {
		amount = amount[1 : len(amount)-1]
	}
	m, err := order.ParseMoney(string(amount), string(currency))
	return m, err == nil
}

func fastEvent(name order.Type, data *fastObject) (order.Event, bool) {
	text := func(field string) (string, bool) {
		b, ok := data.text(field)
		return string(b), ok
	}
	switch name {
	case order.TypeCreated:
		customer, ok1 := text("customer_id")
		total, ok2 := fastMoney(data, "total")
		return order.Created{CustomerID: customer, Total: total}, ok1 && ok2
	case order.TypeAmended:
		total, ok := fastMoney(data, "total")
		return order.Amended{Total: total}, ok
	case order.TypePaid, order.TypeRefunded:
		customer, ok := "", true
		if data.get("customer_id") != nil {
			customer, ok = text("customer_id")
		}
		amount, ok1 := fastMoney(data, "amount")
		if name == order.TypePaid {
			id, ok2 := text("payment_id")
			return order.Paid{PaymentID: id, Amount: amount, CustomerID: customer}, ok && ok1 && ok2
		}
		id, ok2 := text("refund_id")
		return order.Refunded{RefundID: id, Amount: amount, CustomerID: customer}, ok && ok1 && ok2
	case order.TypePacked:
		return order.Packed{}, true
	case order.TypeDelivered:
		return order.Delivered{}, true
	case order.TypeShipped:
		carrier, ok1 := text("carrier")
		number, ok2 := text("tracking_number")
		return order.Shipped{Carrier: carrier, TrackingNumber: number}, ok1 && ok2
	case order.TypeCancelled:
		reason, ok := text("reason")
		return order.Cancelled{Reason: reason}, ok
	case order.TypeReturned:
		reason, ok := text("reason")
		return order.Returned{Reason: reason}, ok
	}
	return nil, false
}
