package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// object is a JSON object: member names are unique and case-sensitive. Its
// values, and those of arrays, are object, []any, string, json.Number, bool or nil.
type object map[string]any

// parseJSON reads exactly one JSON value, strictly: valid UTF-8 (also what \u
// escapes stand for), no byte order mark, nothing after the value, no
// duplicate names at any level, at most 10,000 levels.
func parseJSON(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not valid UTF-8")
	}
	// json.Valid knows the grammar, refuses what trails, and stops at 10,000 levels.
	if !json.Valid(text) {
		return nil, errors.New("not exactly one JSON value")
	}
	if err := checkSurrogates(text); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return readValue(decoder)
}

func readValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		members := object{}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			key := name.(string) // the text is valid JSON
			if _, exists := members[key]; exists {
				return nil, fmt.Errorf("duplicate name %q", key)
			}
			if members[key], err = readValue(decoder); err != nil {
				return nil, err
			}
		}
		_, err := decoder.Token()
		return members, err
	case json.Delim('['):
		elements := []any{}
		for decoder.More() {
			element, err := readValue(decoder)
			if err != nil {
				return nil, err
			}
			elements = append(elements, element)
		}
		_, err := decoder.Token()
		return elements, err
	default:
		return token, nil
	}
}

// checkSurrogates refuses \u escapes of half a surrogate pair: they stand for
// no character, and encoding/json would replace them silently. text is valid
// JSON, so a backslash always opens a complete escape inside a string.
func checkSurrogates(text []byte) error {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // at the escape's letter
		if text[i] != 'u' {
			continue
		}
		unit := hex4(text[i+1:])
		i += 4
		switch {
		case unit < 0xD800 || unit > 0xDFFF:
		case unit >= 0xDC00:
			return errors.New("a low surrogate stands alone")
		default:
			rest := text[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return errors.New("a high surrogate stands alone")
			}
			if low := hex4(rest[2:]); low < 0xDC00 || low > 0xDFFF {
				return errors.New("a high surrogate stands alone")
			}
			i += 6
		}
	}
	return nil
}

func hex4(text []byte) uint64 {
	unit, _ := strconv.ParseUint(string(text[:4]), 16, 32)
	return unit
}
