//go:build unix

package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// badInput is a record that must not apply, sent as the next event of an order that has version 1.
type badInput struct {
	name   string
	record func(orderID string) *kgo.Record
	detail string // part of it
	// What the letter must know. Version and event ID are known only where the body can be believed.
	noOrder bool // not even the key names an order
	version int64
	eventID bool
}

// body makes a record of an order from the members of its version 2.
func body(change func(m map[string]string)) func(string) *kgo.Record {
	return func(orderID string) *kgo.Record {
		m := map[string]string{
			"event_id": fmt.Sprintf("%q", orderID+"-e2"), "order_id": fmt.Sprintf("%q", orderID), "type": `"OrderAmended.v1"`,
			"version": "2", "occurred_at": `"2026-01-01T10:00:02Z"`, "data": `{"total":{"amount":"5.00","currency":"EUR"}}`,
		}
		change(m)
		var members []string
		for _, name := range []string{"event_id", "order_id", "type", "version", "occurred_at", "data", "extra"} {
			if literal, ok := m[name]; ok {
				members = append(members, fmt.Sprintf("%q:%s", name, literal))
			}
		}
		return record(orderID, "{"+strings.Join(members, ",")+"}")
	}
}

func set(name, literal string) func(string) *kgo.Record {
	return body(func(m map[string]string) { m[name] = literal })
}

func amount(literal string) func(string) *kgo.Record {
	return set("data", `{"total":{"amount":`+literal+`,"currency":"EUR"}}`)
}

func value(make func(good string) string) func(string) *kgo.Record {
	return func(orderID string) *kgo.Record {
		return record(orderID, make(string(amended(orderID, 2, "5.00").Value)))
	}
}

func literal(text string) func(string) *kgo.Record { return value(func(string) string { return text }) }

func key(change func(key []byte) []byte) func(string) *kgo.Record {
	return func(orderID string) *kgo.Record {
		r := amended(orderID, 2, "5.00")
		r.Key = change(r.Key)
		return r
	}
}

// badInputs come with what the operator reads about them.
var badInputs = []badInput{
	{name: "empty value", record: literal(""), detail: "empty value"},
	{name: "JSON null", record: literal("null"), detail: "envelope is a JSON null"},
	{name: "empty object", record: literal("{}"), detail: "order_id is missing"},
	{name: "empty array", record: literal("[]"), detail: "envelope is a JSON array"},
	{name: "string", record: literal(`"x"`), detail: "envelope is a JSON string"},
	{name: "number", record: literal("9007199254740993"), detail: "envelope is a JSON number"},
	{name: "white space", record: literal(" \n\t"), detail: "not JSON"},
	{name: "100,000 nested brackets", record: literal(strings.Repeat("[", 100_000)), detail: "envelope is a JSON array"},
	{name: "100,000 nested brackets in data", record: set("data", `{"x":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`), detail: "exceeded max depth"},
	{name: "1 MB of garbage", record: literal(strings.Repeat("x", 1_000_000)), detail: "not JSON"},
	{name: "1 MB reason", record: body(func(m map[string]string) {
		m["type"], m["data"] = `"OrderCancelled.v1"`, `{"reason":"`+strings.Repeat("r", 1_000_000)+`"}`
	}), detail: "reason has 1000000 bytes", version: 2, eventID: true},
	{name: "trailing data", record: value(func(good string) string { return good + "{}" }), detail: "not JSON"},
	{name: "trailing NUL", record: value(func(good string) string { return good + "\x00" }), detail: "not JSON"},
	{name: "cut off", record: value(func(good string) string { return good[:len(good)-1] }), detail: "not JSON: unexpected EOF"},
	{name: "byte order mark", record: value(func(good string) string { return "\xEF\xBB\xBF" + good }), detail: "byte order mark"},
	{name: "schema registry frame", record: value(func(good string) string { return "\x00\x00\x00\x00\x2a" + good }), detail: "schema registry frame"},
	{name: "invalid UTF-8", record: value(func(good string) string { return strings.Replace(good, "-e2", "-\xFFe2", 1) }), detail: "invalid UTF-8"},
	{name: "half a surrogate pair", record: set("extra", `"\ud83d"`), detail: "not JSON"},
	{name: "duplicate key", record: value(func(good string) string { return good[:len(good)-1] + `,"version":2}` }), detail: "duplicate key at /version"},
	{name: "duplicate key in data", record: set("data", `{"total":{"amount":"1","amount":"2","currency":"EUR"}}`), detail: "duplicate key at /data/total/amount"},
	{name: "NaN", record: set("extra", "NaN"), detail: "not JSON"},

	{name: "null key and no order", record: func(string) *kgo.Record { return &kgo.Record{Value: []byte(`{"version":2}`)} }, detail: "order_id is missing", noOrder: true},
	{name: "empty key", record: key(func([]byte) []byte { return []byte{} }), detail: `differs from the record key ""`, noOrder: true},
	{name: "6 kB key", record: key(func(k []byte) []byte { return bytes.Repeat([]byte("k"), 6000) }), detail: "differs from the record key", noOrder: true},
	{name: "key with a newline", record: key(func(k []byte) []byte { return append(k, '\n') }), detail: `\n"`},
	{name: "key with NUL", record: key(func(k []byte) []byte { return append(k, 0) }), detail: `\x00`, noOrder: true},
	{name: "key of invalid UTF-8", record: key(func(k []byte) []byte { return append(k, 0xFF) }), detail: `\xff`, noOrder: true},
	{name: "another order's key", record: key(func([]byte) []byte { return []byte("somebody-else") }), detail: `differs from the record key "somebody-else"`},
	{name: "key in capitals", record: key(bytes.ToUpper), detail: "differs from the record key"},

	{name: "version 0", record: set("version", "0"), detail: "version 0 is outside", eventID: true},
	{name: "version -1", record: set("version", "-1"), detail: "version -1 is outside", eventID: true},
	{name: "version 3.0", record: set("version", "3.0"), detail: "version 3.0 is not a JSON integer", eventID: true},
	{name: "version 1e0", record: set("version", "1e0"), detail: "version 1e0 is not a JSON integer", eventID: true},
	{name: `version "3"`, record: set("version", `"3"`), detail: `version "3" is not a JSON integer`, eventID: true},
	{name: "version 2^63", record: set("version", "9223372036854775808"), detail: "version 9223372036854775808 is outside", eventID: true},
	{name: "version null", record: set("version", "null"), detail: "version null is not a JSON integer", eventID: true},

	{name: "NUL in the order ID", record: set("order_id", `"o\u0000"`), detail: "order_id contains a NUL"},
	{name: "NUL in the event ID", record: set("event_id", `"e\u0000"`), detail: "event_id contains a NUL", version: 2},
	{name: "NUL in the type", record: set("type", `"T\u0000"`), detail: "type contains a NUL", version: 2, eventID: true},
	{name: "event ID of 201 bytes", record: set("event_id", `"`+strings.Repeat("e", 201)+`"`), detail: "event_id has 201 bytes", version: 2},
	{name: "name in capitals", record: value(func(good string) string { return strings.Replace(good, "event_id", "Event_ID", 1) }), detail: "event_id is missing", version: 2},

	{name: "half a cent", record: amount(`"19.995"`), detail: `total: amount "19.995" in currency "EUR": it is not a whole number`, version: 2, eventID: true},
	{name: "half a cent as a number", record: amount(`19.995`), detail: "it is not a whole number", version: 2, eventID: true},
	{name: "money NaN", record: amount(`"NaN"`), detail: "not a decimal number", version: 2, eventID: true},
	{name: "money Infinity", record: amount(`"Infinity"`), detail: "not a decimal number", version: 2, eventID: true},
	{name: "negative money", record: amount(`"-0.01"`), detail: "negative", version: 2, eventID: true},
	{name: "too much money", record: amount(`"92233720368547758.08"`), detail: "total: amount", version: 2, eventID: true},
	{name: "money beyond measure", record: amount(`1e999999999999999999`), detail: "total: amount", version: 2, eventID: true},
	{name: "part of a yen", record: set("data", `{"total":{"amount":"100.5","currency":"JPY"}}`), detail: "it is not a whole number", version: 2, eventID: true},
	{name: "unknown currency", record: set("data", `{"total":{"amount":"1","currency":"ABC"}}`), detail: "ISO 4217", version: 2, eventID: true},
	{name: "customer ID as a number", record: body(func(m map[string]string) {
		m["type"], m["data"] = `"OrderPaid.v1"`, `{"payment_id":"p","customer_id":9007199254740993,"amount":{"amount":"19.99","currency":"EUR"}}`
	}), detail: "customer_id: a JSON number is not allowed", version: 2, eventID: true},

	{name: "time on no day", record: set("occurred_at", `"2026-02-30T10:00:00Z"`), detail: "no such date exists", version: 2, eventID: true},
	{name: "time at hour 24", record: set("occurred_at", `"2026-01-01T24:00:00Z"`), detail: "occurred_at", version: 2, eventID: true},
	{name: "time without zone", record: set("occurred_at", `"2026-01-01T10:00:00"`), detail: "RFC 3339 time with zone", version: 2, eventID: true},
	{name: "time before 1970", record: set("occurred_at", `"1969-12-31T23:59:59Z"`), detail: "outside the years 1970 to 9999", version: 2, eventID: true},
	{name: "time in year 10000", record: set("occurred_at", `"10000-01-01T00:00:00Z"`), detail: "RFC 3339", version: 2, eventID: true},
	{name: "time in an impossible zone", record: set("occurred_at", `"2026-01-01T10:00:00+24:00"`), detail: "zone", version: 2, eventID: true},
}

// Every kind of bad input becomes a letter that says why and keeps the record
// byte for byte, and the next record applies.
func TestBadInputIsKeptAndBlocksNobodyElse(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	orders := make([]*kgo.Record, len(badInputs))
	for i := range badInputs {
		orders[i] = created(fmt.Sprintf("o-%03d", i))
	}
	s.produce(orders...)
	for i, bad := range badInputs {
		orderID := fmt.Sprintf("o-%03d", i)
		sent := bad.record(orderID)
		sent.Timestamp = time.UnixMilli(1_700_000_000_123 + int64(i))
		sent.Headers = []kgo.RecordHeader{
			{Key: "trace", Value: []byte{0, 1, 0xFF}}, {Key: "trace", Value: []byte("again")}, {Key: "nil", Value: nil},
			{Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")}, {Key: "\xFF\x00", Value: []byte("odd name")},
		}
		next := fmt.Sprintf("next-%03d", i)
		s.produce(sent, created(next))
		s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = $1)`, next)

		letter := s.letterAt(sent.Partition, sent.Offset)
		want := keptRecord{sent.Key, sent.Value, sent.Headers, sent.Timestamp.UTC()}
		if sent, kept := want.String(), letter.record.String(); sent != kept {
			t.Errorf("%s: the letter does not keep the record:\nsent %s\nkept %s", bad.name, clip(sent), clip(kept))
		}
		if letter.reason != "invalid" || !strings.Contains(letter.detail, bad.detail) || len(letter.detail) > 600 {
			t.Errorf("%s: reason %s, detail %q, wanted one with %q", bad.name, letter.reason, clip(letter.detail), bad.detail)
		}
		wantOrder := string(sent.Key)
		if bad.noOrder {
			wantOrder = ""
		}
		if letter.orderID != wantOrder || letter.version != bad.version || (letter.eventID != "") != bad.eventID || letter.blocks != (bad.version > 0) {
			t.Errorf("%s: the letter knows order %q, version %d, event %q, blocks %v", bad.name, letter.orderID, letter.version, letter.eventID, letter.blocks)
		}
	}
	s.awaitDrained()
	if n := ask[int](s, `SELECT count(*) FROM dead_letters`); n != len(badInputs) {
		t.Errorf("%d letters for %d bad records", n, len(badInputs))
	}
	s.judge()

	// Where the letter holds the order back, the right event closes it; elsewhere nothing was held back.
	for i := range badInputs {
		orders[i] = amended(fmt.Sprintf("o-%03d", i), 2, "7.00")
	}
	s.produce(orders...)
	s.awaitDrained()
	s.judge()
	if n := ask[int](s, `SELECT count(*) FROM orders WHERE order_id LIKE 'o-%' AND version = 2 AND total_minor = 700 AND projection_status = 'ok'`); n != len(badInputs) {
		t.Errorf("%d of %d orders went on with the right event", n, len(badInputs))
	}
}

func clip(text string) string {
	if len(text) > 2000 {
		return text[:2000] + "…"
	}
	return text
}

// keptRecord is a record as the database keeps it.
type keptRecord struct {
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Timestamp  time.Time
}

// String shows every byte, and tells null from empty.
func (r keptRecord) String() string {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return strconv.Quote(string(b))
	}
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, strconv.Quote(h.Key)+"="+show(h.Value))
	}
	return fmt.Sprintf("%s at %s: %s headers %v", show(r.Key), r.Timestamp.Format(time.RFC3339Nano), show(r.Value), headers)
}

type keptLetter struct {
	record                 keptRecord
	orderID, eventID       string
	version                int64
	reason, detail, status string
	blocks                 bool
	attempts               int
}

// letterAt reads the letter of one record of the stage's topic.
func (s *stage) letterAt(partition int32, offset int64) keptLetter {
	s.t.Helper()
	var l keptLetter
	var headers string
	err := s.pool.QueryRow(s.t.Context(), `SELECT key, value, headers, kafka_timestamp, coalesce(order_id, ''), coalesce(event_id, ''),
		coalesce(version, 0), reason, detail, status, blocks, attempts
		FROM dead_letters WHERE kafka_topic = $1 AND kafka_partition = $2 AND kafka_offset = $3 AND consumer_group = $4`,
		s.topic, partition, offset, s.group).Scan(&l.record.Key, &l.record.Value, &headers, &l.record.Timestamp, &l.orderID, &l.eventID,
		&l.version, &l.reason, &l.detail, &l.status, &l.blocks, &l.attempts)
	if err != nil {
		s.t.Fatalf("the letter of partition %d offset %d: %v", partition, offset, err)
	}
	l.record.Timestamp = l.record.Timestamp.UTC()
	l.record.Headers = decodeHeaders(s.t, headers)
	return l
}

// decodeHeaders reads the column headers as its documentation says.
func decodeHeaders(t testing.TB, text string) []kgo.RecordHeader {
	t.Helper()
	var stored []struct {
		Key       string  `json:"key"`
		KeyBase64 *string `json:"key_base64"`
		Value     *string `json:"value"`
	}
	must(t, json.Unmarshal([]byte(text), &stored))
	var headers []kgo.RecordHeader
	for _, s := range stored {
		h := kgo.RecordHeader{Key: s.Key}
		if s.KeyBase64 != nil {
			key, err := base64.StdEncoding.DecodeString(*s.KeyBase64)
			must(t, err)
			h.Key = string(key)
		}
		if s.Value != nil {
			var err error
			h.Value, err = base64.StdEncoding.DecodeString(*s.Value)
			must(t, err)
		}
		headers = append(headers, h)
	}
	return headers
}
