package projection_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection"
)

// checkDecided checks that a record, whatever it holds, has an outcome that the database can keep: no panic, texts that
// a text column takes, and a detail that stays short however long the input is.
func checkDecided(t *testing.T, name string, r *projection.Record) {
	t.Helper()
	digest := projection.RecordDigest(r)
	env, invalid := projection.DecodeRecord(projection.EventDecoder{}, r)
	texts, version := []string{env.OrderID, env.EventID, env.Type}, env.Version
	if invalid != nil {
		texts, version = []string{invalid.OrderID, invalid.EventID}, invalid.Version
		if detail := invalid.Detail; detail == "" || len(detail) > 600 || strings.Contains(detail, "panic") {
			t.Errorf("%s: the detail has %d bytes: %.700q", name, len(detail), detail)
		}
	}
	for _, text := range texts {
		if len(text) > projection.MaxIDBytes || !utf8.ValidString(text) || strings.Contains(text, "\x00") || text == "" && invalid == nil {
			t.Errorf("%s: no identifier: %.300q", name, text)
		}
	}
	switch {
	case version < 0 || version == 0 && invalid == nil:
		t.Errorf("%s: version %d", name, version)
	case invalid != nil:
		return
	case env.Digest != digest:
		t.Errorf("%s: digest %s of the envelope, %s of the record", name, env.Digest, digest)
	}
	// Another record that says the same is the same event, and one with another member is another event.
	again, other := env, env
	again.Data, other.Data = append([]byte(" "), env.Data...), append([]byte("["), append(env.Data, ']')...)
	if same := projection.SameEvent(&env, &again); same != (len(env.Data) > 0) {
		t.Errorf("%s: the same with a blank more: %v", name, same)
	}
	if projection.SameEvent(&env, &other) || projection.SameEvent(&other, &again) {
		t.Errorf("%s: data in brackets is the same", name)
	}
}

// FuzzAnyRecordIsDecided: any key, headers and value have an outcome. Headers are lines of name, colon and value.
func FuzzAnyRecordIsDecided(f *testing.F) {
	for name, shape := range hostileShapes {
		r := shape(40)
		if strings.HasPrefix(name, "nested") || len(r.Value) > 1000 {
			continue
		}
		var lines []string
		for _, h := range r.Headers {
			lines = append(lines, h.Key+":"+string(h.Value))
		}
		f.Add(r.Key, strings.Join(lines, "\n"), r.Value)
	}
	f.Add([]byte("\x00\xff"), "\x00:\xff\nce_id:\x00\nce_subject:\xff\nce_type", []byte("\x00\x00\x00\x00\x01{}"))
	f.Fuzz(func(t *testing.T, key []byte, headers string, value []byte) {
		r := projection.Record{Key: key, Value: value}
		if r.Value == nil {
			r.Value = []byte{}
		}
		for line := range strings.SplitSeq(headers, "\n") {
			name, content, isSet := strings.Cut(line, ":")
			h := projection.Header{Key: name}
			if isSet {
				h.Value = []byte(content)
			}
			r.Headers = append(r.Headers, h)
		}
		for _, nullKey := range []bool{false, true} {
			if nullKey {
				r.Key = nil
			}
			checkDecided(t, "", &r)
		}
		r.Headers = nil
		checkDecided(t, "", &r)
	})
}
