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
	r := &jsonReader{text: text}
	return r.value()
}

// jsonReader takes valid JSON apart. That it is valid is what makes it short:
// every token is where it has to be and ends as it must.
type jsonReader struct {
	text []byte
	at   int
}

// peek skips white space and returns the byte that follows.
func (r *jsonReader) peek() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
}

// more reports whether an object or array goes on, and steps over its comma
// or its end.
func (r *jsonReader) more(end byte) bool {
	switch r.peek() {
	case end:
		r.at++
		return false
	case ',':
		r.at++
	}
	return true
}

func (r *jsonReader) value() (any, error) {
	switch r.peek() {
	case '{':
		r.at++
		members := object{}
		for r.more('}') {
			r.peek()
			name, err := r.string()
			if err != nil {
				return nil, err
			}
			if _, exists := members[name]; exists {
				return nil, fmt.Errorf("duplicate name %q", name)
			}
			r.peek()
			r.at++ // the colon
			if members[name], err = r.value(); err != nil {
				return nil, err
			}
		}
		return members, nil
	case '[':
		r.at++
		elements := []any{}
		for r.more(']') {
			element, err := r.value()
			if err != nil {
				return nil, err
			}
			elements = append(elements, element)
		}
		return elements, nil
	case '"':
		return r.string()
	}
	start := r.at
	for r.at < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,]}"), r.text[r.at]) < 0 {
		r.at++
	}
	switch literal := string(r.text[start:r.at]); literal {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "null":
		return nil, nil
	default:
		return json.Number(literal), nil
	}
}

// string reads a string; encoding/json resolves the escapes.
func (r *jsonReader) string() (text string, err error) {
	start, escaped := r.at, false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	if !escaped {
		return string(r.text[start+1 : r.at-1]), nil
	}
	err = json.Unmarshal(r.text[start:r.at], &text)
	return text, err
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
