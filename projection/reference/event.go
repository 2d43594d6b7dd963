package reference

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection"
)

// Digest is the first half of a SHA-256.
type Digest [16]byte

func digestOf(data []byte) Digest {
	sum := sha256.Sum256(data)
	return Digest(sum[:16])
}

// event is a record that keeps the event contract.
type event struct {
	orderID    string
	eventID    string
	version    int64
	typeText   string // as written
	known      string // the name of a type at a schema version that is known, else ""
	occurredAt time.Time
	canonical  Digest // of the decoded event: equal for events that mean the same
	// what the state machine asks of the data
	customerID string
	amount     money // total or amount
}

// facts is what can be read of a record although it may be invalid, for its
// dead letter. Zero values stand for what could not be read.
type facts struct {
	orderID string
	version int64
	eventID string
	claims  bool // the body is readable enough to claim this version of this order
}

func (e event) facts() facts {
	return facts{orderID: e.orderID, version: e.version, eventID: e.eventID, claims: true}
}

const (
	maxIdentifier = 200
	maxReason     = 1000
)

// decode reads a record whose value is not null.
func decode(record projection.Record) (event, facts, error) {
	var known facts
	if isIdentifier(string(record.Key)) {
		known.orderID = string(record.Key)
	}
	body, fault, err := bodyOf(record)
	if err != nil {
		return event{}, known, err
	}
	orderID, ok := body["order_id"].(string)
	if !ok || !isIdentifier(orderID) {
		return event{}, known, errors.New("order_id is missing or invalid")
	}
	if record.Key != nil && string(record.Key) != orderID {
		return event{}, known, errors.New("order_id differs from the record key")
	}

	// From here on the body is believed about what it is.
	version, versionOK := readVersion(body["version"])
	eventID, eventIDOK := body["event_id"].(string)
	eventIDOK = eventIDOK && isIdentifier(eventID)
	known = facts{orderID: orderID}
	if versionOK {
		known.version, known.claims = version, true
	}
	if eventIDOK {
		known.eventID = eventID
	}

	typeText, typeOK := body["type"].(string)
	timeText, timeOK := body["occurred_at"].(string)
	occurredAt, instantOK := parseInstant(timeText)
	switch {
	case fault != nil:
		return event{}, known, fault
	case !versionOK:
		return event{}, known, errors.New("version is missing or invalid")
	case !eventIDOK:
		return event{}, known, errors.New("event_id is missing or invalid")
	case !typeOK || !isIdentifier(typeText):
		return event{}, known, errors.New("type is missing or invalid")
	case !timeOK || !instantOK:
		return event{}, known, errors.New("occurred_at is missing or invalid")
	}
	e := event{orderID: orderID, eventID: eventID, version: version, typeText: typeText, occurredAt: occurredAt}
	name, schema := splitType(typeText)
	if err := e.readData(name, schema, body["data"]); err != nil {
		return event{}, known, err
	}
	e.canonical = canonicalDigest(e, name, schema, body)
	return e, known, nil
}

// readData checks the data of a known type and schema version and keeps what the state machine
// needs; others are left alone.
func (e *event) readData(name, schema string, value any) error {
	data, isObject := value.(object)
	identifier := func(field string) error {
		if text, ok := data[field].(string); !ok || !isIdentifier(text) {
			return fmt.Errorf("data.%s is missing or invalid", field)
		}
		return nil
	}
	optionalIdentifier := func(field string) error {
		if data[field] == nil { // left out, or null
			return nil
		}
		return identifier(field)
	}
	amount := func(field string) (err error) {
		if e.amount, err = readMoney(data[field]); err != nil {
			return fmt.Errorf("data.%s: %w", field, err)
		}
		return nil
	}
	reason := func() error {
		text, ok := data["reason"].(string)
		if !ok || len(text) > maxReason || strings.ContainsRune(text, 0) {
			return errors.New("data.reason is missing or invalid")
		}
		return nil
	}

	var err error
	if schema != "1" {
		name += ".v" + schema
	}
	switch name {
	case "OrderCreated.v2":
		name = "OrderCreated"
		lines, linesErr := readLines(data["lines"])
		err = errors.Join(identifier("customer_id"), linesErr)
		e.customerID, _ = data["customer_id"].(string)
		e.amount = lines
	case "OrderCreated":
		err = errors.Join(identifier("customer_id"), amount("total"))
		e.customerID, _ = data["customer_id"].(string)
	case "OrderAmended":
		err = amount("total")
	case "OrderPaid":
		err = errors.Join(identifier("payment_id"), amount("amount"), optionalIdentifier("customer_id"))
	case "OrderShipped":
		err = errors.Join(identifier("carrier"), identifier("tracking_number"))
	case "OrderCancelled", "OrderReturned":
		err = reason()
	case "OrderRefunded":
		err = errors.Join(identifier("refund_id"), amount("amount"), optionalIdentifier("customer_id"))
	case "OrderPacked", "OrderDelivered":
	default:
		return nil
	}
	if !isObject {
		return errors.New("data is missing or not an object")
	}
	e.known = name
	return err
}

// isIdentifier: 1 to 200 bytes of text without NUL.
func isIdentifier(text string) bool {
	return text != "" && len(text) <= maxIdentifier && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

var integerLiteral = regexp.MustCompile(`^[1-9][0-9]*$`)

// readVersion accepts an integer literal in 1..2^63-1.
func readVersion(value any) (int64, bool) {
	literal, ok := value.(json.Number)
	if !ok || !integerLiteral.MatchString(literal.String()) {
		return 0, false
	}
	version, err := strconv.ParseInt(literal.String(), 10, 64)
	return version, err == nil
}

var versionSuffix = regexp.MustCompile(`^(?s)(.+)\.v([1-9][0-9]*)$`)

// splitType splits `Name.vN`; anything else is a name at schema version 1.
func splitType(text string) (name, schema string) {
	if part := versionSuffix.FindStringSubmatch(text); part != nil {
		return part[1], part[2]
	}
	return text, "1"
}
