package reference

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection"
)

// bodyOf reads a record as a plain event: a CloudEvent is translated into one.
// A fault says why the record is invalid although the body tells what it is; err, that there is no body.
func bodyOf(record projection.Record) (body object, fault, err error) {
	headers, fault := headersOf(record)
	isBinary := false
	for _, name := range []string{"ce_specversion", "ce_id", "ce_type", "ce_source"} {
		isBinary = isBinary || headers[name] != nil
	}
	for _, contentType := range headers["content-type"] {
		if strings.HasPrefix(strings.ToLower(strings.TrimLeft(contentType, " \t")), "application/cloudevents") {
			return structuredBody(record, headers["content-type"])
		}
	}
	if isBinary {
		return binaryBody(record, headers, fault)
	}
	body, err = parseObject(record.Value)
	return body, nil, err
}

func parseObject(text []byte) (object, error) {
	value, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	body, ok := value.(object)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return body, nil
}

// headersOf collects the headers that may belong to a CloudEvent, names in lower case. Those that say two
// things, or something that is no text, say nothing, which is a fault.
func headersOf(record projection.Record) (headers map[string][]string, fault error) {
	headers = map[string][]string{}
	for _, h := range record.Headers {
		name := lower(h.Key)
		if name == "content-type" || strings.HasPrefix(name, "ce_") {
			headers[name] = append(headers[name], string(h.Value))
		}
	}
	for name, values := range headers {
		if len(values) > 1 || !utf8.ValidString(values[0]) {
			fault = fmt.Errorf("header %q is not one text", name)
			if name != "content-type" {
				headers[name] = []string{""}
			}
		}
	}
	return headers, fault
}

func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, text)
}

func structuredBody(record projection.Record, contentTypes []string) (body object, fault, err error) {
	event, err := parseObject(record.Value)
	if err != nil {
		return nil, nil, err
	}
	body = object{"event_id": event["id"], "order_id": event["subject"], "version": event["orderversion"], "type": event["type"], "occurred_at": event["time"]}
	if data, exists := event["data"]; exists {
		body["data"] = data
	}
	if event["data_base64"] != nil {
		text, _ := event["data_base64"].(string)
		decoded, notBase64 := base64.StdEncoding.DecodeString(text)
		data, notJSON := parseJSON(decoded)
		fault = errors.Join(notBase64, notJSON)
		if event["data"] != nil || strings.ContainsAny(text, "\r\n") {
			fault = errors.New("data and data_base64, or lines in base64")
		}
		body["data"] = data
	}
	media, parameters, err := mime.ParseMediaType(contentTypes[0])
	dataType, isText := event["datacontenttype"].(string)
	source, _ := event["source"].(string)
	switch {
	case fault != nil:
	case len(contentTypes) > 1 || err != nil || media != "application/cloudevents+json" || !isUnicode(parameters["charset"]):
		fault = errors.New("not one CloudEvent as JSON")
	case event["specversion"] != "1.0":
		fault = errors.New("not CloudEvents 1.0")
	case source == "":
		fault = errors.New("source is missing or invalid")
	case event["datacontenttype"] != nil && !isText, isText && !isJSON(dataType):
		fault = errors.New("datacontenttype is not JSON")
	}
	return body, fault, nil
}

func binaryBody(record projection.Record, headers map[string][]string, fault error) (object, error, error) {
	get := func(name string) string {
		if values := headers[name]; values != nil {
			return values[0]
		}
		return ""
	}
	body := object{"event_id": get("ce_id"), "order_id": get("ce_subject"), "type": get("ce_type"), "occurred_at": get("ce_time"),
		"version": json.Number(get("ce_orderversion"))}
	data, err := parseJSON(record.Value)
	body["data"] = data
	switch {
	case fault != nil:
	case err != nil:
		fault = err
	case get("ce_specversion") != "1.0":
		fault = errors.New("not CloudEvents 1.0")
	case get("ce_source") == "":
		fault = errors.New("ce_source is missing")
	case !isJSON(get("content-type")):
		fault = errors.New("content-type is not JSON")
	}
	return body, fault, nil
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	known := media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
	return err == nil && known && isUnicode(parameters["charset"])
}

func isUnicode(charset string) bool {
	return slices.Contains([]string{"", "utf-8", "utf8", "us-ascii"}, strings.ToLower(charset))
}

// recordDigest is over the value and, of a CloudEvent in binary mode, over its headers too, each as
// length and bytes of name and value.
func recordDigest(record projection.Record) Digest {
	isBinary := false
	for _, h := range record.Headers {
		switch name := lower(h.Key); name {
		case "content-type":
			if strings.HasPrefix(strings.ToLower(strings.TrimLeft(string(h.Value), " \t")), "application/cloudevents") {
				return digestOf(record.Value)
			}
		case "ce_specversion", "ce_id", "ce_type", "ce_source":
			isBinary = true
		}
	}
	if !isBinary {
		return digestOf(record.Value)
	}
	text := slices.Clone(record.Value)
	for _, h := range record.Headers {
		if name := lower(h.Key); strings.HasPrefix(name, "ce_") {
			text = append(binary.BigEndian.AppendUint32(text, uint32(len(name))), name...)
			text = append(binary.BigEndian.AppendUint32(text, uint32(len(h.Value))), h.Value...)
		}
	}
	return digestOf(text)
}
