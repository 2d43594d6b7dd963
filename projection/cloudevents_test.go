package projection_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// inHeaders is an OrderPaid.v1 as a CloudEvent in binary mode.
func inHeaders(changes ...func(*projection.Record)) *projection.Record {
	r := &projection.Record{
		Key: []byte("o-1"), Value: []byte(`{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}`),
		Headers: []projection.Header{
			{Key: "trace", Value: []byte("\xff")}, {Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("e-2")},
			{Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_type", Value: []byte("OrderPaid.v1")}, {Key: "ce_subject", Value: []byte("o-1")},
			{Key: "ce_time", Value: []byte("2026-01-01T10:00:00Z")}, {Key: "ce_orderversion", Value: []byte("2")},
			{Key: "content-type", Value: []byte("application/json; charset=utf-8")}, {Key: "ce_traceparent", Value: []byte("00-1-2-01")},
		},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

// header sets a header, or removes it when there are no values, or gives it twice.
func header(key string, values ...string) func(*projection.Record) {
	return func(r *projection.Record) {
		kept := r.Headers[:0:0]
		for _, h := range r.Headers {
			if h.Key != key {
				kept = append(kept, h)
			}
		}
		for _, v := range values {
			kept = append(kept, projection.Header{Key: key, Value: []byte(v)})
		}
		r.Headers = kept
	}
}

func withValue(value string) func(*projection.Record) {
	return func(r *projection.Record) { r.Value = []byte(value) }
}

func withKey(key []byte) func(*projection.Record) {
	return func(r *projection.Record) { r.Key = key }
}

// inBody is the same event in structured mode, with texts replaced.
func inBody(contentType string, replaced ...string) *projection.Record {
	body := `{"specversion":"1.0","id":"e-2","source":"/shop","type":"OrderPaid.v1","subject":"o-1","time":"2026-01-01T10:00:00Z","orderversion":2,` +
		`"traceparent":"00-1-2-01","data":{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}}`
	return &projection.Record{
		Key: []byte("o-1"), Value: []byte(strings.NewReplacer(replaced...).Replace(body)),
		Headers: []projection.Header{{Key: "content-type", Value: []byte(contentType)}},
	}
}

const structuredType = "application/cloudevents+json"

func TestCloudEventsAreRead(t *testing.T) {
	t.Parallel()
	want := projection.Envelope{
		EventID: "e-2", OrderID: "o-1", Type: "OrderPaid.v1", Version: 2, OccurredAt: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC),
		Event: order.Paid{PaymentID: "p-1", Amount: order.Money{Minor: 1999, Currency: "EUR"}},
		Data:  []byte(`{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}`),
	}
	capitals := func(r *projection.Record) {
		for i := range r.Headers {
			r.Headers[i].Key = strings.ToUpper(r.Headers[i].Key)
		}
	}
	for name, rec := range map[string]*projection.Record{
		"binary":                               inHeaders(),
		"binary, names in capitals":            inHeaders(capitals),
		"binary, null key":                     inHeaders(withKey(nil)),
		"binary, no content type":              inHeaders(header("content-type")),
		"binary, another kind of JSON":         inHeaders(header("content-type", "application/vnd.shop+json")),
		"structured":                           inBody(structuredType),
		"structured, parameters and capitals":  inBody(` Application/CloudEvents+JSON; charset="UTF-8"`),
		"structured, data in base64":           inBody(structuredType, `"data":{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}`, `"data_base64":"`+base64.StdEncoding.EncodeToString(inHeaders().Value)+`","data":null`),
		"structured, null attribute":           inBody(structuredType, `"traceparent"`, `"datacontenttype":null,"traceparent"`),
		"structured, attributes in headers":    {Key: []byte("o-1"), Value: inBody("").Value, Headers: append(inHeaders(header("content-type"), header("ce_id", "x", "y")).Headers, inBody(structuredType).Headers...)},
		"structured, content type in capitals": {Key: []byte("o-1"), Value: inBody("").Value, Headers: []projection.Header{{Key: "Content-Type", Value: []byte(structuredType)}}},
	} {
		got, err := projection.EventDecoder{}.Decode(rec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Digest != projection.RecordDigest(rec) {
			t.Errorf("%s: the digest is not the record's", name)
		}
		got.Digest = projection.Digest{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is refused says why, and names order, event and version where they are certain.
func TestBadCloudEvents(t *testing.T) {
	t.Parallel()
	type identity struct {
		order, event string
		version      int64
	}
	whole := identity{"o-1", "e-2", 2}
	noEvent, noVersion, nothing := identity{"o-1", "", 2}, identity{"o-1", "e-2", 0}, identity{}
	for name, c := range map[string]struct {
		rec    *projection.Record
		detail string
		want   identity
	}{
		"ce_specversion missing":  {inHeaders(header("ce_specversion")), "ce_specversion is missing or empty", whole},
		"ce_specversion 0.3":      {inHeaders(header("ce_specversion", "0.3")), `ce_specversion "0.3" is not supported, only 1.0 is`, whole},
		"ce_id missing":           {inHeaders(header("ce_id")), "ce_id is missing or empty: it has to be the event ID", noEvent},
		"ce_id twice":             {inHeaders(header("ce_id", "e-2", "e-2")), `the header "ce_id" is there more than once`, noEvent},
		"ce_id in capitals too":   {inHeaders(func(r *projection.Record) { r.Headers = append(r.Headers, projection.Header{Key: "CE_ID"}) }), `the header "ce_id" is there more than once`, noEvent},
		"ce_source missing":       {inHeaders(header("ce_source")), "ce_source is missing or empty", whole},
		"ce_type missing":         {inHeaders(header("ce_type")), "ce_type is missing or empty", whole},
		"ce_time missing":         {inHeaders(header("ce_time")), "ce_time is missing", whole},
		"ce_time without zone":    {inHeaders(header("ce_time", "2026-01-01T10:00:00")), `ce_time "2026-01-01T10:00:00" is not an RFC 3339 time with zone`, whole},
		"ce_subject missing":      {inHeaders(header("ce_subject")), "ce_subject is missing or empty: it has to be the order ID", nothing},
		"ce_subject of another":   {inHeaders(header("ce_subject", "o-2")), `ce_subject "o-2" differs from the record key "o-1"`, nothing},
		"ce_subject twice":        {inHeaders(header("ce_subject", "o-1", "o-1")), `the header "ce_subject" is there more than once`, nothing},
		"ce_subject no UTF-8":     {inHeaders(header("ce_subject", "o\xff"), withKey([]byte("o\xff"))), `the header "ce_subject" is not valid UTF-8`, nothing},
		"ce_orderversion missing": {inHeaders(header("ce_orderversion")), "ce_orderversion is missing or empty", noVersion},
		"ce_orderversion 0":       {inHeaders(header("ce_orderversion", "0")), `ce_orderversion "0" is not a decimal integer from 1`, noVersion},
		"ce_orderversion 02":      {inHeaders(header("ce_orderversion", "02")), `ce_orderversion "02" is not a decimal integer from 1`, noVersion},
		"ce_orderversion 2.0":     {inHeaders(header("ce_orderversion", "2.0")), `ce_orderversion "2.0" is not a decimal integer from 1`, noVersion},
		"ce_orderversion +2":      {inHeaders(header("ce_orderversion", "+2")), `ce_orderversion "+2" is not a decimal integer from 1`, noVersion},
		"ce_orderversion 2^63":    {inHeaders(header("ce_orderversion", "9223372036854775808")), "ce_orderversion 9223372036854775808 is outside 1..9223372036854775807", noVersion},
		"an extension twice":      {inHeaders(header("ce_x", "1", "2")), `the header "ce_x" is there more than once`, whole},
		"text as data":            {inHeaders(header("content-type", "text/plain")), `the data's content type is "text/plain", and only application/json is supported`, whole},
		"latin data":              {inHeaders(header("content-type", "application/json; charset=latin1")), `the charset is "latin1", and only UTF-8 is supported`, whole},
		"two content types":       {inHeaders(header("content-type", "application/json", "application/json")), `the header "content-type" is there more than once`, whole},
		"no data":                 {inHeaders(withValue("")), "data: empty value", whole},
		"a plain event as data":   {inHeaders(withValue(`{"event_id":"e-2","data":{}}`)), `data of "OrderPaid.v1": payment_id is missing or empty`, whole},
		"data cut off":            {inHeaders(withValue(`{"payment_id":`)), "data: not JSON: unexpected EOF at byte 14", whole},
		"duplicate key in data":   {inHeaders(withValue(`{"a":1,"a":1}`)), "data: duplicate key at /a", whole},
		"invalid UTF-8 in data":   {inHeaders(withValue("{\"a\":\"\xff\"}")), "data: not JSON: invalid UTF-8 at byte 6", whole},
		"data in a frame":         {inHeaders(withValue("\x00\x00\x00\x00\x2a{}")), "not JSON: the value begins with a schema registry frame (byte 0 and schema ID 42)", whole},
		"unreadable unknown data": {inHeaders(header("ce_type", "OrderPaid.v9"), withValue("{")), "data: not JSON: unexpected EOF at byte 1", whole},

		"batch":                     {inBody("application/cloudevents-batch+json"), `the content type "application/cloudevents-batch+json" is a batch of CloudEvents, which is not supported: publish one record per event`, whole},
		"another format":            {inBody("application/cloudevents+avro"), `the content type "application/cloudevents+avro" is not supported: of the formats of CloudEvents, only application/cloudevents+json is`, whole},
		"no format":                 {inBody("application/cloudevents"), `the content type "application/cloudevents" is not supported`, whole},
		"latin":                     {inBody(structuredType + "; charset=latin1"), `the charset is "latin1", and only UTF-8 is supported`, whole},
		"an array":                  {&projection.Record{Value: []byte(`[]`), Headers: inBody(structuredType).Headers}, "envelope is a JSON array, not an object", nothing},
		"null":                      {&projection.Record{Value: []byte(`null`), Headers: inBody(structuredType).Headers}, "the CloudEvent is a JSON null, not an object", nothing},
		"specversion missing":       {inBody(structuredType, `"specversion"`, `"version"`), "specversion is missing or empty", whole},
		"specversion a number":      {inBody(structuredType, `"1.0"`, `1.0`), "/specversion: a JSON number is not allowed here", whole},
		"source null":               {inBody(structuredType, `"/shop"`, `null`), "source is missing or empty", whole},
		"id missing":                {inBody(structuredType, `"id"`, `"ID"`), "id is missing or empty: it has to be the event ID", noEvent},
		"subject missing":           {inBody(structuredType, `"subject"`, `"object"`), "subject is missing or empty: it has to be the order ID", nothing},
		"subject of another":        {inBody(structuredType, `"o-1"`, `"o-2"`), `subject "o-2" differs from the record key "o-1"`, nothing},
		"orderversion in quotes":    {inBody(structuredType, `n":2`, `n":"2"`), `orderversion "2" is not a JSON integer`, noVersion},
		"orderversion 2.0":          {inBody(structuredType, `n":2`, `n":2.0`), "orderversion 2.0 is not a JSON integer", noVersion},
		"orderversion missing":      {inBody(structuredType, `"orderversion"`, `"version"`), "orderversion is missing", noVersion},
		"time missing":              {inBody(structuredType, `"time"`, `"at"`), "time is missing", whole},
		"duplicate key":             {inBody(structuredType, `"traceparent"`, `"id":"e-3","traceparent"`), "duplicate key at /id", nothing},
		"data in base64 too":        {inBody(structuredType, `"data":`, `"data_base64":"e30=","data":`), "data and data_base64 are both there", whole},
		"data in no base64":         {inBody(structuredType, `"data":`, `"data_base64":"e30","x":`), "data_base64 is not a text in base64", whole},
		"a number in base64":        {inBody(structuredType, `"data":`, `"data_base64":7,"x":`), "data_base64 is not a text in base64", whole},
		"text in base64":            {inBody(structuredType, `"data":`, `"data_base64":"dGV4dA==","x":`), "data_base64: not JSON: ", whole},
		"duplicate key in base64":   {inBody(structuredType, `"data":`, `"data_base64":"eyJhIjoxLCJhIjoxfQ==","x":`), "data_base64: duplicate key at /a", whole},
		"a frame in base64":         {inBody(structuredType, `"data":`, `"data_base64":"AAAAACp7fQ==","x":`), "not JSON: the value begins with a schema registry frame (byte 0 and schema ID 42)", whole},
		"XML data":                  {inBody(structuredType, `"traceparent":"00-1-2-01"`, `"datacontenttype":"text/xml"`), `the data's content type is "text/xml", and only application/json is supported`, whole},
		"no data in the body":       {inBody(structuredType, `"data"`, `"date"`), `data of "OrderPaid.v1": missing or not an object`, whole},
		"framed body":               {&projection.Record{Value: []byte("\x00\x00\x00\x01\x00{}"), Headers: inBody(structuredType).Headers}, "(byte 0 and schema ID 256), which is not supported; publish JSON without a frame, or CloudEvents", nothing},
		"its content type is lost":  {inBody("application/json"), "order_id is missing or empty; it looks like a CloudEvent, which needs the header content-type: application/cloudevents+json", nothing},
		"framed":                    {&projection.Record{Value: []byte("\x00\x00\x00\x00\x07\x02\x06o-1")}, "not JSON: the value begins with a schema registry frame (byte 0 and schema ID 7), which is not supported; publish JSON without a frame, or CloudEvents", nothing},
		"frame in a header":         {&projection.Record{Value: []byte("\x02\x06o-1"), Headers: []projection.Header{{Key: "__value_schema_id", Value: []byte("\x01123")}}}, "; the header __value_schema_id says that a serializer of a schema registry wrote it: publish JSON or CloudEvents", nothing},
		"nothing but a zero":        {&projection.Record{Value: []byte{0}}, "not JSON: invalid character", nothing},
		"headers of somebody else":  {&projection.Record{Value: []byte(`{}`), Headers: []projection.Header{{Key: "ce"}, {Key: "ce_traceparent"}, {Key: "content-type", Value: []byte("application/json")}}}, "order_id is missing or empty", nothing},
		"every attribute but no CE": {&projection.Record{Value: []byte(`{}`), Headers: []projection.Header{{Key: "ce_subject"}}}, "order_id is missing or empty", nothing},
	} {
		_, err := projection.EventDecoder{}.Decode(c.rec)
		var invalid *projection.DecodeError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(invalid.Detail, c.detail) || !strings.HasPrefix(invalid.Detail, c.detail[:1]) && c.detail[0] != '(' && c.detail[0] != ';' {
			t.Errorf("%s: %q, want %q", name, invalid.Detail, c.detail)
		}
		if got := (identity{invalid.OrderID, invalid.EventID, invalid.Version}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if strings.Contains(invalid.Detail, "\n") || !utf8.ValidString(invalid.Detail) {
			t.Errorf("%s: %q is no one line of text", name, invalid.Detail)
		}
	}
}

// Versions are exact in both modes, also where a float is not.
func TestLargeVersionsOfCloudEventsAreExact(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"9007199254740993", "9223372036854775807"} {
		for _, rec := range []*projection.Record{inHeaders(header("ce_orderversion", version)), inBody(structuredType, `n":2`, `n":`+version)} {
			env, err := projection.EventDecoder{}.Decode(rec)
			if err != nil {
				t.Fatal(err)
			}
			if got := (order.Money{Minor: env.Version, Currency: "JPY"}).Amount(); got != version {
				t.Errorf("%s, want %s", got, version)
			}
		}
	}
}

// An event of an unknown type or version is whole, and waits for a release that knows it.
func TestUnknownTypesOfCloudEvents(t *testing.T) {
	t.Parallel()
	for _, rec := range []*projection.Record{
		inHeaders(header("ce_type", "OrderPaid.v2"), withValue(`[1]`)),
		inBody(structuredType, "OrderPaid.v1", "OrderPaid.v2", `"data"`, `"date"`),
	} {
		env, err := projection.EventDecoder{}.Decode(rec)
		if err != nil || env.Event != nil || env.OrderID != "o-1" || env.Version != 2 || env.Type != "OrderPaid.v2" {
			t.Errorf("%+v, %v", env, err)
		}
	}
}

// The digest covers what a binary event says in its headers, and nothing else of them.
func TestDigestsOfCloudEvents(t *testing.T) {
	t.Parallel()
	digest := projection.RecordDigest
	first := digest(inHeaders())
	for name, other := range map[string]*projection.Record{
		"another id":        inHeaders(header("ce_id", "e-3")),
		"another version":   inHeaders(header("ce_orderversion", "3")),
		"another data":      inHeaders(withValue(`{}`)),
		"another extension": inHeaders(header("ce_traceparent", "00-9-9-01")),
	} {
		if digest(other) == first {
			t.Errorf("%s has the same digest", name)
		}
	}
	if digest(inHeaders(header("trace", "x"), header("content-type", "application/json"))) != first {
		t.Error("headers of others count")
	}
	structured := inBody(structuredType)
	structured.Headers = append(structured.Headers, inHeaders(header("content-type")).Headers...)
	if digest(structured) != projection.DigestOf(structured.Value) {
		t.Error("headers of a structured event count")
	}
}

// What the official SDK writes is read, in both modes, and says the same as the plain event.
func TestEventsOfTheSDK(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{1, 1 << 31, 1<<53 + 1} {
		c := projectiontest.CloudEvent{
			EventID: "e-1", OrderID: "o-é", Type: "OrderCreated.v2", Version: version, OccurredAt: time.Date(2026, 1, 1, 10, 0, 0, 123456789, time.FixedZone("", 3600)),
			Data: `{"customer_id":"c","lines":[{"sku":"s<&>","quantity":2,"unit_price":{"amount":1.10,"currency":"EUR"}}]}`,
		}
		rec, err := c.Binary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		env, err := projection.EventDecoder{}.Decode(&rec)
		if err != nil {
			t.Fatalf("%v\n%s\n%q", err, rec.Value, rec.Headers)
		}
		want := order.Created{CustomerID: "c", Total: order.Money{Minor: 220, Currency: "EUR"}}
		if env.EventID != "e-1" || env.OrderID != "o-é" || env.Version != version || env.Event != want || !env.OccurredAt.Equal(c.OccurredAt.Truncate(time.Microsecond)) {
			t.Errorf("%+v", env)
		}
		if version > 1<<31-1 {
			continue // an integer of the SDK has 32 bits
		}
		rec, err = c.Structured(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		structured, err := projection.EventDecoder{}.Decode(&rec)
		if err != nil {
			t.Fatalf("%v\n%s\n%q", err, rec.Value, rec.Headers)
		}
		if !projection.SameEvent(&env, &structured) || env.Event != structured.Event {
			t.Errorf("binary %+v, structured %+v", env, structured)
		}
	}
}

// What the generator writes is a CloudEvent to the official SDK too.
func TestGeneratedCloudEventsAreEvents(t *testing.T) {
	t.Parallel()
	stream, err := generate.New(generate.Config{Seed: 4, Orders: 50, Rates: generate.Rates{CloudEvents: 1, Lines: 0.5, Reencoded: 0.2}})
	if err != nil {
		t.Fatal(err)
	}
	binary, structured := 0, 0
	for g := range stream.All() {
		rec := projection.Record{Key: g.Key, Value: g.Value, Headers: g.Headers}
		env, err := projection.EventDecoder{}.Decode(&rec)
		if err != nil {
			t.Fatalf("%v: %s %q", err, g.Value, g.Headers)
		}
		e, err := projectiontest.ReadCloudEvent(&rec)
		if err != nil {
			t.Fatalf("%v: %s %q", err, g.Value, g.Headers)
		}
		if e.ID() != env.EventID || e.Subject() != env.OrderID || e.Type() != env.Type || !e.Time().Equal(env.OccurredAt) {
			t.Fatalf("the SDK reads %s, the decoder %+v", e, env)
		}
		if len(rec.Headers) > 2 {
			binary++
		} else {
			structured++
		}
	}
	if binary < 50 || structured < 50 {
		t.Errorf("%d binary and %d structured events", binary, structured)
	}
}

// A plain record costs no more than a look at its headers: nothing is allocated for it.
func TestTheFormatCostsPlainEventsNothing(t *testing.T) {
	value := []byte(`{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`)
	rec := projection.Record{Value: value, Headers: []projection.Header{{Key: "op-generator", Value: []byte("x")}, {Key: "trace"}}}
	decode := func(d projection.Decoder) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := d.Decode(&rec); err != nil {
				t.Fatal(err)
			}
		})
	}
	if plain, every := decode(projection.JSONDecoder{}), decode(projection.EventDecoder{}); every > plain {
		t.Errorf("%v allocations, without the choice of a format %v", every, plain)
	}
}
