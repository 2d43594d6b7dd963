package generate

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/orderprojector/orderprojector/projection"
)

// cloudEventSource is the source of every CloudEvent that is made up.
const cloudEventSource = "/orderprojector/generate"

var structuredHeaders = []projection.Header{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}}

// binaryHeaders are a CloudEvent's attributes in binary mode. The order of headers differs with the style.
func binaryHeaders(e *event, s style) []projection.Header {
	headers := []projection.Header{
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_id", Value: e.id[:]},
		{Key: "ce_source", Value: []byte(cloudEventSource)},
		{Key: "ce_type", Value: appendType(nil, e, s)},
		{Key: "ce_subject", Value: []byte(e.orderID)},
		{Key: "ce_time", Value: appendTime(nil, e, s)},
		{Key: "ce_orderversion", Value: strconv.AppendInt(nil, e.version, 10)},
		{Key: "content-type", Value: []byte("application/json")},
	}
	headers[1].Value = bytes.Clone(headers[1].Value) // the event's own memory is used again
	return slices.Concat(headers[s.rotate:], headers[:s.rotate])
}

// appendStructured writes an event as a CloudEvent in structured mode.
func appendStructured(to []byte, e *event, s style) []byte {
	sep, colon := ",", ":"
	if s.spaces {
		sep, colon = " ,\n  ", " : "
	}
	text := func(name string, value []byte) {
		to = append(append(append(appendName(to, name, colon), '"'), value...), '"')
	}
	to = append(to, '{')
	const members = 9
	for i := range members {
		if i > 0 {
			to = append(to, sep...)
		}
		switch (i + s.rotate) % members {
		case 0:
			text("specversion", []byte("1.0"))
		case 1:
			text("id", e.id[:])
		case 2:
			text("source", []byte(cloudEventSource))
		case 3:
			text("type", appendType(nil, e, s))
		case 4:
			text("subject", []byte(e.orderID))
		case 5:
			text("time", appendTime(nil, e, s))
		case 6:
			to = strconv.AppendInt(appendName(to, "orderversion", colon), e.version, 10)
		case 7:
			text("datacontenttype", []byte("application/json"))
		case 8:
			to = appendData(appendName(to, "data", colon), e, s, sep, colon)
		}
	}
	return append(to, '}')
}

// poisonCloudEvent returns a bad CloudEvent about an event that is about to come.
func (p *planner) poisonCloudEvent(pl *plan, e *event) poison {
	made := badCloudEvents[p.fault.IntN(len(badCloudEvents))]
	bad := poison{name: made.name, key: pl.key, claims: made.claims}
	if made.structured != nil {
		bad.value, bad.headers = made.structured(appendStructured(nil, e, style{})), structuredHeaders
		if made.contentType != "" {
			bad.headers = []projection.Header{{Key: "content-type", Value: []byte(made.contentType)}}
		}
		return bad
	}
	bad.value, bad.headers = made.binary(appendData(nil, e, style{}, ",", ":"), binaryHeaders(e, style{}))
	return bad
}

// badCloudEvents get a good one to spoil, in one mode or the other.
var badCloudEvents = []struct {
	name        string
	claims      bool
	structured  func(value []byte) []byte
	contentType string
	binary      func(value []byte, headers []projection.Header) ([]byte, []projection.Header)
}{
	{name: "batch", structured: func(good []byte) []byte { return append(append([]byte{'['}, good...), ']') }, contentType: "application/cloudevents-batch+json"},
	{name: "another event format", claims: true, structured: same, contentType: "application/cloudevents+avro"},
	{name: "latin text", claims: true, structured: same, contentType: "application/cloudevents+json; charset=iso-8859-1"},
	{name: "structured event without its content type", structured: same, contentType: "application/json"},
	{name: "specversion 0.3", claims: true, structured: replaced(`"1.0"`, `"0.3"`)},
	{name: "specversion a number", claims: true, structured: replaced(`"1.0"`, `1.0`)},
	{name: "source missing", claims: true, structured: replaced(`"source"`, `"origin"`)},
	{name: "source null", claims: true, structured: replaced(`"`+cloudEventSource+`"`, `null`)},
	{name: "subject missing", structured: replaced(`"subject"`, `"object"`)},
	{name: "subject of another order", structured: replaced(`"subject":"`, `"subject":"x`)},
	{name: "id missing", claims: true, structured: replaced(`"id"`, `"ID"`)},
	{name: "time missing", claims: true, structured: replaced(`"time"`, `"at"`)},
	{name: "time without zone", claims: true, structured: replaced(`Z","orderversion"`, `","orderversion"`)},
	{name: "orderversion missing", structured: replaced(`"orderversion"`, `"version"`)},
	{name: "orderversion with a fraction", structured: replaced(`,"datacontenttype"`, `.0,"datacontenttype"`)},
	{name: "XML data", claims: true, structured: replaced(`application/json`, `application/xml`)},
	{name: "data in base64 beside data", claims: true, structured: replaced(`"data":{`, `"data_base64":"e30=","data":{`)},
	{name: "data in no base64", claims: true, structured: replaced(`"data":{`, `"data_base64":"e30","note":{`)},
	{name: "text in base64", claims: true, structured: replaced(`"data":{`, `"data_base64":"dGV4dA==","note":{`)},
	{name: "array in base64", claims: true, structured: replaced(`"data":{`, `"data_base64":"W10=","note":{`)},
	{name: "duplicate attribute", structured: func(good []byte) []byte { return addMember(good, `"subject":"another"`) }},
	{name: "structured event, framed", structured: func(good []byte) []byte { return append([]byte{0, 0, 0, 0, 42}, good...) }},

	{name: "ce_specversion missing", claims: true, binary: withoutHeader("ce_specversion")},
	{name: "ce_specversion 0.3", claims: true, binary: withHeader("ce_specversion", "0.3")},
	{name: "ce_id missing", claims: true, binary: withoutHeader("ce_id")},
	{name: "ce_source empty", claims: true, binary: withHeader("ce_source", "")},
	{name: "ce_subject missing", binary: withoutHeader("ce_subject")},
	{name: "ce_subject of another order", binary: withHeader("ce_subject", "another")},
	{name: "ce_type missing", claims: true, binary: withoutHeader("ce_type")},
	{name: "ce_time missing", claims: true, binary: withoutHeader("ce_time")},
	{name: "ce_orderversion missing", binary: withoutHeader("ce_orderversion")},
	{name: "ce_orderversion with a zero in front", binary: withHeader("ce_orderversion", "01")},
	{name: "ce_orderversion with a sign", binary: withHeader("ce_orderversion", "+1")},
	{name: "ce_orderversion 2^63", binary: withHeader("ce_orderversion", "9223372036854775808")},
	{name: "ce_id twice", claims: true, binary: addHeader("ce_id", "another")},
	{name: "ce_subject twice, once in capitals", binary: addHeader("CE_Subject", "another")},
	{name: "an extension twice", claims: true, binary: func(value []byte, headers []projection.Header) ([]byte, []projection.Header) {
		return value, append(headers, projection.Header{Key: "ce_x", Value: []byte("1")}, projection.Header{Key: "ce_x", Value: []byte("1")})
	}},
	{name: "header of invalid UTF-8", claims: true, binary: addHeader("ce_note", "\xff")},
	{name: "ce_subject of invalid UTF-8", binary: withHeader("ce_subject", "o\xff")},
	{name: "text as data", claims: true, binary: withHeader("content-type", "text/plain")},
	{name: "two content types", claims: true, binary: addHeader("Content-Type", "application/json")},
	{name: "no data", claims: true, binary: withData(func([]byte) []byte { return []byte{} })},
	{name: "data cut off", claims: true, binary: withData(func(good []byte) []byte { return good[:len(good)-1] })},
	{name: "data twice", claims: true, binary: withData(func(good []byte) []byte { return append(good, good...) })},
	{name: "framed data", claims: true, binary: withData(func(good []byte) []byte { return append([]byte{0, 0, 0, 0, 42}, good...) })},
	{name: "duplicate name in data", claims: true, binary: withData(func([]byte) []byte { return []byte(`{"a":1,"a":1}`) })},
	{name: "an array as data", claims: true, binary: withData(func([]byte) []byte { return []byte(`[]`) })},
}

func replaced(old, with string) func([]byte) []byte {
	return func(good []byte) []byte { return bytes.Replace(good, []byte(old), []byte(with), 1) }
}

func withHeader(key, value string) func([]byte, []projection.Header) ([]byte, []projection.Header) {
	return func(data []byte, headers []projection.Header) ([]byte, []projection.Header) {
		for i := range headers {
			if headers[i].Key == key {
				headers[i].Value = []byte(value)
			}
		}
		return data, headers
	}
}

func addHeader(key, value string) func([]byte, []projection.Header) ([]byte, []projection.Header) {
	return func(data []byte, headers []projection.Header) ([]byte, []projection.Header) {
		return data, append(headers, projection.Header{Key: key, Value: []byte(value)})
	}
}

func withoutHeader(key string) func([]byte, []projection.Header) ([]byte, []projection.Header) {
	return func(data []byte, headers []projection.Header) ([]byte, []projection.Header) {
		return data, slices.DeleteFunc(headers, func(h projection.Header) bool { return h.Key == key })
	}
}

func withData(spoil func([]byte) []byte) func([]byte, []projection.Header) ([]byte, []projection.Header) {
	return func(data []byte, headers []projection.Header) ([]byte, []projection.Header) {
		return spoil(data), headers
	}
}
