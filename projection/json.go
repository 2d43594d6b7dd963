package projection

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/orderprojector/orderprojector/domain/order"
)

// JSONDecoder reads the plain JSON envelope. The library refuses duplicate
// keys, invalid UTF-8, a byte order mark, trailing data and nesting deeper than 10,000,
// and matches keys case-sensitively; the rest of the contract is checked here.
type JSONDecoder struct{}

type jsonEnvelope struct {
	EventID    string         `json:"event_id"`
	OrderID    string         `json:"order_id"`
	Type       string         `json:"type"`
	Version    jsontext.Value `json:"version"`
	OccurredAt string         `json:"occurred_at"`
	Data       jsontext.Value `json:"data"`
}

// Decode implements Decoder.
func (JSONDecoder) Decode(r *Record) (Envelope, error) {
	if env, ok := decodeFast(r); ok {
		return env, nil
	}
	return decodeStrict(r)
}

func decodeStrict(r *Record) (Envelope, error) {
	var body jsonEnvelope
	if err := json.Unmarshal(r.Value, &body); err != nil {
		return Envelope{}, salvage(r, describeJSON(r.Value, err))
	}
	if kind := firstKind(r.Value); kind != '{' {
		return Envelope{}, invalidf("envelope is a JSON %s, not an object", kindName(kind))
	}
	env, err := body.envelope(r)
	if err != nil {
		return Envelope{}, salvage(r, err.Error())
	}
	return env, nil
}

func (b *jsonEnvelope) envelope(r *Record) (Envelope, error) {
	if err := checkID("order_id", b.OrderID); err != nil {
		return Envelope{}, err
	}
	if r.Key != nil && string(r.Key) != b.OrderID {
		return Envelope{}, fmt.Errorf("order_id %s differs from the record key %s", quoted(b.OrderID), quoted(string(r.Key)))
	}
	if err := checkID("event_id", b.EventID); err != nil {
		return Envelope{}, err
	}
	version, err := parsePositive("version", b.Version)
	if err != nil {
		return Envelope{}, err
	}
	if err := checkID("type", b.Type); err != nil {
		return Envelope{}, err
	}
	at, err := ParseTime(b.OccurredAt)
	if err != nil {
		return Envelope{}, fmt.Errorf("occurred_at %w", err)
	}
	env := Envelope{
		EventID: b.EventID, OrderID: b.OrderID, Type: b.Type, Version: version,
		OccurredAt: at, Digest: DigestOf(r.Value), Data: b.Data,
	}
	env.Event, err = decodeData(b.Type, b.Data)
	if err != nil {
		return Envelope{}, fmt.Errorf("data of %s: %w", quoted(b.Type), err)
	}
	return env, nil
}

// salvage reads what it can of an invalid body, so that the letter is linked
// to its order and, where the order is certain, holds it back. The order is certain only when
// the body names it and the record key does not say otherwise.
func salvage(r *Record, detail string) *DecodeError {
	return salvageNamed(r, detail, identifyingNames{order: "order_id", event: "event_id", version: "version"})
}

// identifyingNames are the members of a body that say which event it is.
type identifyingNames struct{ order, event, version string }

func salvageNamed(r *Record, detail string, names identifyingNames) *DecodeError {
	e := &DecodeError{Detail: detail}
	var fields map[string]jsontext.Value
	if firstKind(r.Value) != '{' || json.Unmarshal(r.Value, &fields) != nil {
		return e
	}
	var orderID, eventID string
	if json.Unmarshal(fields[names.order], &orderID) != nil || checkID(names.order, orderID) != nil ||
		(r.Key != nil && string(r.Key) != orderID) {
		return e
	}
	e.OrderID = orderID
	if json.Unmarshal(fields[names.event], &eventID) == nil && checkID(names.event, eventID) == nil {
		e.EventID = eventID
	}
	if v, err := parsePositive(names.version, fields[names.version]); err == nil {
		e.Version = v
	}
	return e
}

// parsePositive reads a JSON integer from 1 to the largest of 64 bits.
func parsePositive(field string, raw jsontext.Value) (int64, error) {
	text := string(bytes.TrimSpace(raw))
	if text == "" {
		return 0, fmt.Errorf("%s is missing", field)
	}
	if strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") != "" {
		return 0, fmt.Errorf("%s %s is not a JSON integer", field, clip(text, 60))
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%s %s is outside 1..9223372036854775807", field, clip(text, 60))
	}
	return v, nil
}

// ParseTime reads an RFC 3339 time with zone, years 1970 to 9999, and
// truncates it to the microsecond, which is what the database keeps.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, errors.New("is missing")
	}
	bad := func(why string) (time.Time, error) {
		return time.Time{}, fmt.Errorf("%s %s", quoted(s), why)
	}
	// time.Parse is laxer than the RFC (one-digit hours, a comma before the fraction), so
	// the shape is checked first: yyyy-mm-ddThh:mm:ss[.fff](Z|+hh:mm)
	const shape = "dddd-dd-ddTdd:dd:dd"
	if len(s) < len(shape)+1 {
		return bad("is not an RFC 3339 time with zone")
	}
	for i := range len(shape) {
		want, got := shape[i], s[i]
		right := got == want || want == 'T' && got == 't'
		if want == 'd' {
			right = got >= '0' && got <= '9'
		}
		if !right {
			return bad("is not an RFC 3339 time with zone")
		}
	}
	if s[len(shape)] == ',' {
		return bad("is not an RFC 3339 time with zone")
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		if at, err = time.Parse(time.RFC3339Nano, strings.ToUpper(s)); err != nil {
			return bad("is not an RFC 3339 time with zone, or no such date exists")
		}
	}
	if zone := s[len(s)-6:]; (zone[0] == '+' || zone[0] == '-') && (zone[1:3] > "23" || zone[4:6] > "59") {
		return bad("has an impossible zone")
	}
	at = at.UTC().Truncate(time.Microsecond)
	if at.Year() < 1970 || at.Year() > 9999 {
		return bad("is outside the years 1970 to 9999")
	}
	return at, nil
}

func checkID(field, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is missing or empty", field)
	case len(s) > MaxIDBytes:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", field, len(s), MaxIDBytes)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%s contains a NUL character", field)
	}
	return nil
}

func checkReason(field string, s *string) error {
	switch {
	case s == nil:
		return fmt.Errorf("%s is missing", field)
	case len(*s) > MaxReasonBytes:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", field, len(*s), MaxReasonBytes)
	case strings.IndexByte(*s, 0) >= 0:
		return fmt.Errorf("%s contains a NUL character", field)
	}
	return nil
}

// jsonMoney is money as written: the amount as a string or a number.
type jsonMoney struct {
	Amount   jsontext.Value `json:"amount"`
	Currency string         `json:"currency"`
}

func (m *jsonMoney) money(field string) (order.Money, error) {
	if m == nil {
		return order.Money{}, fmt.Errorf("%s is missing", field)
	}
	var text string
	switch m.Amount.Kind() {
	case '0':
		text = string(m.Amount)
	case '"':
		b, err := jsontext.AppendUnquote(nil, m.Amount)
		if err != nil {
			return order.Money{}, fmt.Errorf("%s.amount: %w", field, err)
		}
		text = string(b)
	default:
		return order.Money{}, fmt.Errorf("%s.amount is missing or neither a string nor a number", field)
	}
	money, err := order.ParseMoney(text, m.Currency)
	if err != nil {
		return order.Money{}, fmt.Errorf("%s: %w", field, err)
	}
	return money, nil
}

// decodeData reads the data of a known type. An unknown type or schema
// version gives a nil event.
func decodeData(written string, data jsontext.Value) (order.Event, error) {
	name, schema := SplitType(written)
	decode := dataDecoders[name]
	if schema != 1 {
		decode = laterDecoders[typeVersion{name, schema}]
	}
	if decode == nil {
		return nil, nil
	}
	if data.Kind() != '{' {
		return nil, errors.New("missing or not an object")
	}
	return decode(data)
}

var dataDecoders = map[order.Type]func(jsontext.Value) (order.Event, error){
	order.TypeCreated: decodeCreatedV1,
	order.TypeAmended: func(data jsontext.Value) (order.Event, error) {
		var d struct {
			Total *jsonMoney `json:"total"`
		}
		if err := unmarshalData(data, &d); err != nil {
			return nil, err
		}
		total, err := d.Total.money("total")
		return order.Amended{Total: total}, err
	},
	order.TypePaid: func(data jsontext.Value) (order.Event, error) {
		var d struct {
			PaymentID  string     `json:"payment_id"`
			Amount     *jsonMoney `json:"amount"`
			CustomerID *string    `json:"customer_id"` // optional: many encoders write null for nothing
		}
		if err := unmarshalData(data, &d); err != nil {
			return nil, err
		}
		amount, customer, err := payment("payment_id", d.PaymentID, d.Amount, d.CustomerID)
		return order.Paid{PaymentID: d.PaymentID, Amount: amount, CustomerID: customer}, err
	},
	order.TypePacked:    func(data jsontext.Value) (order.Event, error) { return order.Packed{}, nil },
	order.TypeDelivered: func(data jsontext.Value) (order.Event, error) { return order.Delivered{}, nil },
	order.TypeShipped: func(data jsontext.Value) (order.Event, error) {
		var d struct {
			Carrier        string `json:"carrier"`
			TrackingNumber string `json:"tracking_number"`
		}
		if err := unmarshalData(data, &d); err != nil {
			return nil, err
		}
		return order.Shipped{Carrier: d.Carrier, TrackingNumber: d.TrackingNumber},
			errors.Join(checkID("carrier", d.Carrier), checkID("tracking_number", d.TrackingNumber))
	},
	order.TypeCancelled: func(data jsontext.Value) (order.Event, error) {
		reason, err := decodeReason(data)
		return order.Cancelled{Reason: reason}, err
	},
	order.TypeReturned: func(data jsontext.Value) (order.Event, error) {
		reason, err := decodeReason(data)
		return order.Returned{Reason: reason}, err
	},
	order.TypeRefunded: func(data jsontext.Value) (order.Event, error) {
		var d struct {
			RefundID   string     `json:"refund_id"`
			Amount     *jsonMoney `json:"amount"`
			CustomerID *string    `json:"customer_id"`
		}
		if err := unmarshalData(data, &d); err != nil {
			return nil, err
		}
		amount, customer, err := payment("refund_id", d.RefundID, d.Amount, d.CustomerID)
		return order.Refunded{RefundID: d.RefundID, Amount: amount, CustomerID: customer}, err
	},
}

func payment(idField, id string, amount *jsonMoney, customer *string) (order.Money, string, error) {
	if err := checkID(idField, id); err != nil {
		return order.Money{}, "", err
	}
	money, err := amount.money("amount")
	if err != nil || customer == nil {
		return money, "", err
	}
	return money, *customer, checkID("customer_id", *customer)
}

func decodeReason(data jsontext.Value) (string, error) {
	var d struct {
		Reason *string `json:"reason"`
	}
	if err := unmarshalData(data, &d); err != nil {
		return "", err
	}
	if err := checkReason("reason", d.Reason); err != nil {
		return "", err
	}
	return *d.Reason, nil
}

// unmarshalData skips what the envelope's pass has already checked.
func unmarshalData(data jsontext.Value, into any) error {
	err := json.Unmarshal(data, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return errors.New(describeJSON(data, err))
	}
	return nil
}

// describeJSON names the cause first, without the library's Go types.
func describeJSON(value []byte, err error) string {
	switch {
	case len(value) == 0:
		return "empty value"
	case bytes.HasPrefix(value, []byte("\xef\xbb\xbf")):
		return "value starts with a byte order mark"
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		if kind := semantic.JSONKind; semantic.JSONPointer != "" && kind != 0 {
			return fmt.Sprintf("%s: a JSON %s is not allowed here", clip(string(semantic.JSONPointer), 60), kindName(byte(kind)))
		}
		if kind := firstKind(value); kind != '{' {
			return fmt.Sprintf("envelope is a JSON %s, not an object", kindName(kind))
		}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Sprintf("duplicate key at %s", clip(string(syntactic.JSONPointer), 60))
		}
		cause := syntactic.Err.Error()
		return fmt.Sprintf("not JSON: %s at byte %d", clip(cause, 200), syntactic.ByteOffset)
	}
	return clip(err.Error(), 200)
}

func firstKind(value []byte) byte {
	return byte(jsontext.Value(value).Kind())
}

func kindName(kind byte) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '[':
		return "array"
	case '{':
		return "object"
	}
	return "value"
}

// quoted shows input in a message: short, printable, and storable as text.
func quoted(s string) string { return strconv.Quote(clip(s, 60)) }

// clip shortens s to at most n bytes without splitting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
