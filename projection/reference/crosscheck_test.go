package reference_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// verdict is what either side says of one record.
type verdict struct {
	valid   bool
	orderID string
	version int64
	eventID string
}

func byProduct(t testing.TB, r projection.Record) (verdict, *projection.Envelope) {
	env, err := projection.EventDecoder{}.Decode(&r)
	if err == nil {
		return verdict{true, env.OrderID, env.Version, env.EventID}, &env
	}
	var refused *projection.DecodeError
	if !errors.As(err, &refused) {
		t.Fatalf("%v is no *DecodeError", err)
	}
	return verdict{false, refused.OrderID, refused.Version, refused.EventID}, nil
}

// byReference asks a fold that knows nothing else. What a letter takes from the
// record's key is not the decoder's business, so it is left out.
func byReference(r projection.Record) verdict {
	fold := reference.NewFold()
	outcome := fold.Add(r)
	result := fold.Result()
	switch outcome {
	case projection.Invalid:
		l := result.DeadLetters[0]
		if l.Version == 0 && l.EventID == "" {
			return verdict{}
		}
		return verdict{false, l.OrderID, l.Version, l.EventID}
	case projection.Parked:
		p := result.Parked[0]
		return verdict{true, p.OrderID, p.Version, p.EventID}
	case projection.Applied:
		o := result.Orders[0]
		return verdict{true, o.OrderID, o.Version, o.LastEventID}
	default:
		l := result.DeadLetters[0]
		return verdict{true, l.OrderID, l.Version, l.EventID}
	}
}

func compareVerdicts(t testing.TB, r projection.Record) *projection.Envelope {
	got, env := byProduct(t, r)
	want := byReference(r)
	if !got.valid && got.version == 0 && got.eventID == "" {
		got.orderID = "" // the reference took the key's, if any
	}
	if got != want {
		t.Errorf("product %+v, reference %+v\nkey   %.200q\nvalue %.500q\nheaders %q", got, want, r.Key, r.Value, r.Headers)
	}
	return env
}

// The product's decoder and the reference's agree on every record that the
// generator can think of, and on which events say the same.
func TestDecodersAgree(t *testing.T) {
	t.Parallel()
	type claim struct {
		orderID string
		version int64
	}
	earlier := map[claim]projection.Record{}
	envelopes := map[claim]*projection.Envelope{}
	stream, err := generate.New(generate.Config{Seed: 11, Orders: 6000, Rates: generate.Rates{
		Duplicate: 0.02, Reencoded: 0.4, LateRepeat: 0.01, Disorder: 0.02, Conflict: 0.2, Poison: 0.5,
		Illegal: 0.05, Unsupported: 0.1, Gap: 0.01, NullKey: 0.02, HugeVersion: 0.05, CloudEvents: 0.2, Lines: 0.3,
	}})
	if err != nil {
		t.Fatal(err)
	}
	records, invalid, pairs, same := 0, 0, 0, 0
	bad := map[string]bool{} // invalid CloudEvents
	for g := range stream.All() {
		if t.Failed() {
			break
		}
		r := projection.Record{Key: g.Key, Value: g.Value, Headers: g.Headers}
		records++
		env := compareVerdicts(t, r)
		if env == nil {
			invalid++
			if len(r.Headers) > 1 {
				bad[g.Label.Detail] = true
			}
			continue
		}
		if valid := g.Label.Fault != generate.Poison; !valid {
			t.Errorf("%s is accepted: %.500q", g.Label.Detail, r.Value)
		}
		c := claim{env.OrderID, env.Version}
		if older, ok := envelopes[c]; ok && older.EventID == env.EventID && older.Digest != env.Digest {
			pairs++
			a := projection.SameEvent(older, env)
			b, known := sameByReference(earlier[c], r)
			if known && a != b {
				t.Errorf("same event: product %t, reference %t\n%s\n%s", a, b, earlier[c].Value, r.Value)
			}
			if known && b {
				same++
			}
		}
		earlier[c], envelopes[c] = r, env
	}
	t.Logf("%d records, %d invalid, CloudEvents in %d ways; %d pairs with the same ID, %d of them the same event", records, invalid, len(bad), pairs, same)
	if records < 50_000 || invalid < 10_000 || len(bad) < 40 || pairs < 10_000 || same < 500 {
		t.Error("too little was compared")
	}
}

// sameByReference folds two versions of a first event; of later ones the
// fold would have to know the events before.
func sameByReference(a, b projection.Record) (same, known bool) {
	fold := reference.NewFold()
	if fold.Add(a) != projection.Applied {
		return false, false
	}
	return fold.Add(b) == projection.Duplicate, true
}

func FuzzDecodersAgree(f *testing.F) {
	stream, err := generate.New(generate.Config{Seed: 12, Orders: 200, Rates: generate.Rates{Poison: 0.5, Reencoded: 0.1}})
	if err != nil {
		f.Fatal(err)
	}
	for g := range stream.All() {
		if len(g.Value) < 2000 && g.Value != nil {
			f.Add(g.Key, g.Key == nil, g.Value)
		}
	}
	f.Fuzz(func(t *testing.T, key []byte, nullKey bool, value []byte) {
		if nullKey {
			key = nil
		} else if key == nil {
			key = []byte{}
		}
		if value == nil {
			value = []byte{}
		}
		compareVerdicts(t, projection.Record{Key: key, Value: value})
	})
}

// FuzzCloudEventsAgree: headers are lines of name, colon and value.
func FuzzCloudEventsAgree(f *testing.F) {
	stream, err := generate.New(generate.Config{Seed: 13, Orders: 100, Rates: generate.Rates{Poison: 0.7, CloudEvents: 1, Lines: 0.5}})
	if err != nil {
		f.Fatal(err)
	}
	for g := range stream.All() {
		if len(g.Value) < 2000 && g.Value != nil {
			var lines []string
			for _, h := range g.Headers[1:] {
				lines = append(lines, h.Key+":"+string(h.Value))
			}
			f.Add(g.Key, strings.Join(lines, "\n"), g.Value)
		}
	}
	f.Fuzz(func(t *testing.T, key []byte, headers string, value []byte) {
		r := projection.Record{Key: key, Value: value}
		if r.Value == nil {
			r.Value = []byte{}
		}
		for line := range strings.Lines(headers) {
			name, content, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			r.Headers = append(r.Headers, projection.Header{Key: name, Value: []byte(content)})
		}
		compareVerdicts(t, r)
		r.Key = nil
		compareVerdicts(t, r)
	})
}
