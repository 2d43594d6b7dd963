package projection

import (
	"bytes"
	"encoding/binary"
)

// format is how an event is written into a record.
type format uint8

const (
	formatPlain      format = iota // one JSON object, the value
	formatBinary                   // CloudEvents in binary mode: attributes in headers, the data is the value
	formatStructured               // CloudEvents in structured mode: one JSON object with everything, the value
)

// headerPrefix begins the names of the headers that carry a CloudEvent's attributes.
const headerPrefix = "ce_"

// formatOf looks at headers alone. A record is a CloudEvent in structured mode when its
// content type says so, whatever other headers repeat, and one in binary mode when it has any of
// the attributes that every CloudEvent has. Names of headers match in any case: bridges from HTTP change it.
func formatOf(r *Record) format {
	found := formatPlain
	for i := range r.Headers {
		key := r.Headers[i].Key
		if len(key) < len("ce_id") || key[0]|0x20 != 'c' { // most headers: they end here
			continue
		}
		switch lowerASCII(key) {
		case "content-type":
			if isCloudEventsType(r.Headers[i].Value) {
				return formatStructured
			}
		case "ce_specversion", "ce_id", "ce_type", "ce_source":
			found = formatBinary
		}
	}
	return found
}

// isCloudEventsType reports whether a content type announces an event format of CloudEvents.
func isCloudEventsType(contentType []byte) bool {
	const prefix = "application/cloudevents"
	contentType = bytes.TrimLeft(contentType, " \t")
	return len(contentType) >= len(prefix) && lowerASCII(string(contentType[:len(prefix)])) == prefix
}

// lowerASCII lowers A to Z only: no other letter is equal to one of them.
func lowerASCII(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// registryFrame recognises the frame that serializers of a schema registry put in front of a
// value: a zero byte and the schema's ID. No JSON begins with a zero byte.
func registryFrame(value []byte) (schemaID uint32, framed bool) {
	const frameBytes = 5
	if len(value) < frameBytes || value[0] != 0 {
		return 0, false
	}
	return binary.BigEndian.Uint32(value[1:frameBytes]), true
}
