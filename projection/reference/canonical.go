package reference

import (
	"encoding/binary"
	"encoding/json"
	"slices"
)

// canonicalDigest is equal for two events exactly when they mean the same:
// key order, white space, escapes, zones, the spelling of numbers and a left-out
// ".v1" do not matter; the envelope's unknown members do not count, all of
// the data does.
func canonicalDigest(e event, name, schema string, body object) Digest {
	text := appendText(nil, e.orderID)
	text = appendText(text, e.eventID)
	text = binary.BigEndian.AppendUint64(text, uint64(e.version))
	text = appendText(text, name)
	text = appendText(text, schema)
	text = binary.BigEndian.AppendUint64(text, uint64(e.occurredAt.UnixMicro()))
	if data, exists := body["data"]; exists {
		text = appendValue(text, data)
	}
	return digestOf(text)
}

// appendValue appends an encoding that differs for different values: a letter
// for the kind, then lengths before contents.
func appendValue(to []byte, value any) []byte {
	switch value := value.(type) {
	case object:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		to = binary.BigEndian.AppendUint64(append(to, 'o'), uint64(len(names)))
		for _, name := range names {
			to = appendValue(appendText(to, name), value[name])
		}
	case []any:
		to = binary.BigEndian.AppendUint64(append(to, 'a'), uint64(len(value)))
		for _, element := range value {
			to = appendValue(to, element)
		}
	case string:
		to = appendText(append(to, 's'), value)
	case json.Number:
		number, _ := parseDecimal(value.String())
		to = appendText(append(to, 'n'), number.String())
	case bool:
		if value {
			return append(to, 't')
		}
		to = append(to, 'f')
	case nil:
		to = append(to, '0')
	}
	return to
}

func appendText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint64(to, uint64(len(text))), text...)
}
