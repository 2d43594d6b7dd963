package schemacheck

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Input is one event of a file.
type Input struct {
	Line  int // where it begins, from 1
	Value []byte
}

// Split takes a file apart into events: one JSON value, several one after another, or one a line. What is
// no JSON is handed on, as one event or line by line, so that it can be said what is wrong with it.
func Split(file []byte) []Input {
	if inputs, ok := splitValues(file); ok {
		return inputs
	}
	var inputs []Input
	for i, line := range bytes.Split(file, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			inputs = append(inputs, Input{i + 1, line})
		}
	}
	if len(inputs) > 1 && !isValue(inputs[0].Value) && !isValue(inputs[1].Value) { // one event over several lines, broken
		return []Input{{inputs[0].Line, bytes.TrimSpace(file)}}
	}
	return inputs
}

// splitValues leaves to the decoder what a value should not hold.
func splitValues(file []byte) (inputs []Input, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(file), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	line, counted := 1, 0
	for {
		value, err := dec.ReadValue()
		if errors.Is(err, io.EOF) {
			return inputs, true
		}
		if err != nil {
			return nil, false
		}
		begin := int(dec.InputOffset()) - len(value)
		line += bytes.Count(file[counted:begin], []byte("\n"))
		counted = begin
		inputs = append(inputs, Input{line, bytes.Clone(value)})
	}
}

func isValue(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
