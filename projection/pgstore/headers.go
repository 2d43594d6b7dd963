package pgstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection"
)

// headers is how a record's headers are stored: a JSON array in their order,
// with the values in base64, and null for a null value.
type headers []projection.Header

type storedHeader struct {
	Key string `json:"key"`
	// KeyBase64 replaces Key where that is no text that JSON in PostgreSQL can hold.
	KeyBase64 string  `json:"key_base64,omitempty"`
	Value     *string `json:"value"`
}

func (h headers) json() string {
	if len(h) == 0 {
		return "[]"
	}
	stored := make([]storedHeader, len(h))
	for i, header := range h {
		if utf8.ValidString(header.Key) && strings.IndexByte(header.Key, 0) < 0 {
			stored[i].Key = header.Key
		} else {
			stored[i].KeyBase64 = base64.StdEncoding.EncodeToString([]byte(header.Key))
		}
		if header.Value != nil {
			value := base64.StdEncoding.EncodeToString(header.Value)
			stored[i].Value = &value
		}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		panic(err) // strings only: cannot fail
	}
	return string(text)
}

// Scan implements sql.Scanner.
func (h *headers) Scan(src any) error {
	var text []byte
	switch src := src.(type) {
	case string:
		text = []byte(src)
	case []byte:
		text = src
	default:
		return fmt.Errorf("headers stored as %T", src)
	}
	var stored []storedHeader
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("stored headers: %w", err)
	}
	*h = nil
	for _, s := range stored {
		header := projection.Header{Key: s.Key}
		if s.KeyBase64 != "" {
			key, err := base64.StdEncoding.DecodeString(s.KeyBase64)
			if err != nil {
				return fmt.Errorf("stored header key: %w", err)
			}
			header.Key = string(key)
		}
		if s.Value != nil {
			value, err := base64.StdEncoding.DecodeString(*s.Value)
			if err != nil {
				return fmt.Errorf("stored header value: %w", err)
			}
			header.Value = value
		}
		*h = append(*h, header)
	}
	return nil
}
