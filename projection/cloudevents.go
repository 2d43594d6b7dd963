package projection

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// cloudEvent is what a CloudEvent says of an order event, in either mode. Attributes
// that are not there are empty.
type cloudEvent struct {
	prefix string // of attribute names in messages: as the producer wrote them

	specVersion, id, typ, source, subject, time string
	// contentType is that of the data.
	contentType string
	versionText string // as a header has it
	version     int64
	versionErr  error
	data        jsontext.Value
}

// envelope checks the attributes and reads the data.
func (e *cloudEvent) envelope(r *Record) (Envelope, error) {
	named := func(attribute string) string { return e.prefix + attribute }
	switch e.specVersion {
	case "1.0":
	case "":
		return Envelope{}, fmt.Errorf("%s is missing or empty", named("specversion"))
	default:
		return Envelope{}, fmt.Errorf("%s %s is not supported, only 1.0 is", named("specversion"), quoted(e.specVersion))
	}
	if err := checkID(named("subject"), e.subject); err != nil {
		return Envelope{}, fmt.Errorf("%w: it has to be the order ID", err)
	}
	if r.Key != nil && string(r.Key) != e.subject {
		return Envelope{}, fmt.Errorf("%s %s differs from the record key %s", named("subject"), quoted(e.subject), quoted(string(r.Key)))
	}
	if err := checkID(named("id"), e.id); err != nil {
		return Envelope{}, fmt.Errorf("%w: it has to be the event ID", err)
	}
	if e.versionErr != nil {
		return Envelope{}, e.versionErr
	}
	if err := checkID(named("type"), e.typ); err != nil {
		return Envelope{}, err
	}
	if e.source == "" {
		return Envelope{}, fmt.Errorf("%s is missing or empty", named("source"))
	}
	at, err := ParseTime(e.time)
	if err != nil {
		return Envelope{}, fmt.Errorf("%s %w", named("time"), err)
	}
	env := Envelope{
		EventID: e.id, OrderID: e.subject, Type: e.typ, Version: e.version, OccurredAt: at, Digest: RecordDigest(r), Data: e.data,
	}
	if err := checkDataType(e.contentType); err != nil {
		return Envelope{}, err
	}
	env.Event, err = decodeData(e.typ, e.data)
	if err != nil {
		return Envelope{}, fmt.Errorf("data of %s: %w", quoted(e.typ), err)
	}
	return env, nil
}

// checkDataType refuses what is not JSON in UTF-8. Without a content type, JSON is assumed.
func checkDataType(contentType string) error {
	if contentType == "" {
		return nil
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("the data's content type %s cannot be read", quoted(contentType))
	}
	if mediaType != "application/json" && mediaType != "text/json" && !strings.HasSuffix(mediaType, "+json") {
		return fmt.Errorf("the data's content type is %s, and only application/json is supported", quoted(contentType))
	}
	return checkCharset(parameters["charset"])
}

func checkCharset(charset string) error {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
		return nil
	}
	return fmt.Errorf("the charset is %s, and only UTF-8 is supported", quoted(charset))
}

// decodeStructured reads a CloudEvent in structured mode.
func decodeStructured(r *Record) (Envelope, error) {
	if err := checkStructuredType(r); err != nil {
		return Envelope{}, salvageNamed(r, err.Error(), structuredNames)
	}
	if schemaID, framed := registryFrame(r.Value); framed {
		return Envelope{}, invalidf("%s", framedDetail(schemaID))
	}
	var body struct {
		SpecVersion string         `json:"specversion"`
		ID          string         `json:"id"`
		Type        string         `json:"type"`
		Source      string         `json:"source"`
		Subject     string         `json:"subject"`
		Time        string         `json:"time"`
		ContentType string         `json:"datacontenttype"`
		Version     jsontext.Value `json:"orderversion"`
		Data        jsontext.Value `json:"data"`
		DataBase64  jsontext.Value `json:"data_base64"`
	}
	if err := json.Unmarshal(r.Value, &body); err != nil {
		return Envelope{}, salvageNamed(r, describeJSON(r.Value, err), structuredNames)
	}
	if kind := firstKind(r.Value); kind != '{' {
		return Envelope{}, invalidf("the CloudEvent is a JSON %s, not an object", kindName(kind))
	}
	data, err := dataOf(body.Data, body.DataBase64)
	if err != nil {
		return Envelope{}, salvageNamed(r, err.Error(), structuredNames)
	}
	e := cloudEvent{
		specVersion: body.SpecVersion, id: body.ID, typ: body.Type, source: body.Source, subject: body.Subject, time: body.Time,
		contentType: body.ContentType, data: data,
	}
	e.version, e.versionErr = parsePositive("orderversion", body.Version)
	env, err := e.envelope(r)
	if err != nil {
		return Envelope{}, salvageNamed(r, err.Error(), structuredNames)
	}
	return env, nil
}

// dataOf returns the data, which is in one of two members. Those who hand the official SDKs encoded JSON
// get it written in base64, although it is JSON.
func dataOf(data, inBase64 jsontext.Value) (jsontext.Value, error) {
	const absent = 'n'
	if inBase64 == nil || inBase64.Kind() == absent {
		return data, nil
	}
	if data != nil && data.Kind() != absent {
		return nil, errors.New("data and data_base64 are both there")
	}
	var decoded []byte
	if err := json.Unmarshal(inBase64, &decoded); err != nil {
		return nil, errors.New("data_base64 is not a text in base64")
	}
	if schemaID, framed := registryFrame(decoded); framed {
		return nil, errors.New(framedDetail(schemaID))
	}
	if err := json.Unmarshal(decoded, &data); err != nil {
		return nil, fmt.Errorf("data_base64: %s", describeJSON(decoded, err))
	}
	return data, nil
}

// structuredNames are the members of a CloudEvent that identify an order event.
var structuredNames = identifyingNames{order: "subject", event: "id", version: "orderversion"}

// checkStructuredType refuses content types of CloudEvents other than one event as JSON.
func checkStructuredType(r *Record) error {
	contentType, found := "", 0
	for i := range r.Headers {
		if lowerASCII(r.Headers[i].Key) == "content-type" {
			contentType = string(r.Headers[i].Value)
			found++
		}
	}
	if found > 1 {
		return errors.New("the header content-type is there more than once")
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return fmt.Errorf("the content type %s cannot be read", quoted(contentType))
	case strings.HasPrefix(mediaType, "application/cloudevents-batch"):
		return fmt.Errorf("the content type %s is a batch of CloudEvents, which is not supported: publish one record per event", quoted(contentType))
	case mediaType != "application/cloudevents+json":
		return fmt.Errorf("the content type %s is not supported: of the formats of CloudEvents, only application/cloudevents+json is", quoted(contentType))
	}
	return checkCharset(parameters["charset"])
}

// decodeBinary reads a CloudEvent in binary mode.
func decodeBinary(r *Record) (Envelope, error) {
	e, err := readAttributes(r)
	if err != nil {
		return Envelope{}, e.salvage(r, err.Error())
	}
	env, err := e.binaryEnvelope(r)
	if err != nil {
		return Envelope{}, e.salvage(r, err.Error())
	}
	return env, nil
}

func (e *cloudEvent) binaryEnvelope(r *Record) (Envelope, error) {
	if schemaID, framed := registryFrame(r.Value); framed {
		return Envelope{}, errors.New(framedDetail(schemaID))
	}
	if err := checkDataType(e.contentType); err != nil {
		return Envelope{}, err
	}
	// Reading the data skips what is checked here, and data of an unknown type is kept for a later version.
	if err := json.Unmarshal(r.Value, &e.data); err != nil {
		return Envelope{}, fmt.Errorf("data: %s", describeJSON(r.Value, err))
	}
	return e.envelope(r)
}

// readAttributes reads a CloudEvent's attributes from the headers. What is readable is
// returned beside an error; an attribute that is there twice is not.
func readAttributes(r *Record) (*cloudEvent, error) {
	e := &cloudEvent{prefix: headerPrefix}
	seen := make(map[string]bool, len(r.Headers))
	var failed error
	for i := range r.Headers {
		name, value := lowerASCII(r.Headers[i].Key), r.Headers[i].Value
		if !strings.HasPrefix(name, headerPrefix) && name != "content-type" {
			continue
		}
		var wrong error
		switch {
		case seen[name]:
			wrong = fmt.Errorf("the header %s is there more than once", quoted(name))
		case !utf8.Valid(value):
			wrong = fmt.Errorf("the header %s is not valid UTF-8", quoted(name))
		}
		seen[name] = true
		if wrong != nil {
			value, failed = nil, cmp.Or(failed, wrong)
		}
		if into := e.attribute(name); into != nil {
			*into = string(value)
		}
	}
	e.version, e.versionErr = parseHeaderVersion(e.versionText)
	return e, failed
}

// attribute is where the value of a header belongs, or nil.
func (e *cloudEvent) attribute(header string) *string {
	switch header {
	case "ce_specversion":
		return &e.specVersion
	case "ce_id":
		return &e.id
	case "ce_type":
		return &e.typ
	case "ce_source":
		return &e.source
	case "ce_subject":
		return &e.subject
	case "ce_time":
		return &e.time
	case "ce_orderversion":
		return &e.versionText
	case "content-type":
		return &e.contentType
	}
	return nil
}

// parseHeaderVersion reads a decimal integer as CloudEvents writes it in a header.
func parseHeaderVersion(text string) (int64, error) {
	const name = "ce_orderversion"
	if text == "" {
		return 0, fmt.Errorf("%s is missing or empty", name)
	}
	if strings.Trim(text, "0123456789") != "" || text[0] == '0' {
		return 0, fmt.Errorf("%s %s is not a decimal integer from 1", name, quoted(text))
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %s is outside 1..9223372036854775807", name, clip(text, 60))
	}
	return version, nil
}

// salvage says what the headers name, under the rule of every format: the order is certain only when
// the event names it and the record key does not say otherwise.
func (e *cloudEvent) salvage(r *Record, detail string) *DecodeError {
	invalid := &DecodeError{Detail: detail}
	if checkID("subject", e.subject) != nil || r.Key != nil && string(r.Key) != e.subject {
		return invalid
	}
	invalid.OrderID, invalid.Version = e.subject, e.version
	if checkID("id", e.id) == nil {
		invalid.EventID = e.id
	}
	return invalid
}

// looksLikeCloudEvent reports whether a body has the attribute that every CloudEvent has.
func looksLikeCloudEvent(value []byte) bool {
	var body struct {
		SpecVersion jsontext.Value `json:"specversion"`
	}
	return firstKind(value) == '{' && json.Unmarshal(value, &body) == nil && body.SpecVersion != nil
}
