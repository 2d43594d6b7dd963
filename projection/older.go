package projection

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// readOlder reads records again that decisions have to be compared with. Coordinates are sorted by partition, then offset.
func (p *Projector) readOlder(ctx context.Context, into map[coordinate]*Envelope, topic TopicPartition, coordinates []coordinate) error {
	return readOlder(ctx, p.cfg.BatchTimeout, p.cfg.Older, p.cfg.Decoder, into, topic, coordinates)
}

func readOlder(ctx context.Context, timeout time.Duration, older RecordReader, decoder Decoder,
	into map[coordinate]*Envelope, topic TopicPartition, coordinates []coordinate,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for len(coordinates) > 0 {
		topic.Partition = coordinates[0].partition
		var offsets []int64
		for _, c := range coordinates {
			if c.partition == topic.Partition {
				offsets = append(offsets, c.offset)
			}
		}
		err := older.ReadRecords(ctx, topic, offsets, func(rec Record) {
			c := coordinate{rec.Partition, rec.Offset}
			into[c] = nil
			if rec.Value == nil {
				return
			}
			if env, invalid := decode(decoder, &rec); invalid == nil {
				into[c] = &env
			}
		})
		var unreadable *UnreadableError
		switch {
		case errors.As(err, &unreadable):
			behind, _ := slices.BinarySearch(offsets, unreadable.Next)
			offsets = offsets[:max(behind, 1)] // what lies behind is read next
			for _, offset := range offsets {
				if offset >= unreadable.First {
					into[coordinate{topic.Partition, offset}] = &Envelope{Unreadable: unreadable.Error()}
				}
			}
		case err != nil:
			return fmt.Errorf("reading %d records of %s again: %w", len(offsets), topic, err)
		}
		for _, offset := range offsets {
			if c := (coordinate{topic.Partition, offset}); into[c] == nil {
				into[c] = nil // gone, which is known now
			}
		}
		coordinates = coordinates[len(offsets):]
	}
	return nil
}

// SameEvent reports whether two envelopes say the same, whatever their key
// order, white space and envelope format. Numbers are compared exactly.
func SameEvent(a, b *Envelope) bool {
	if a.EventID != b.EventID || a.OrderID != b.OrderID || a.Version != b.Version || !a.OccurredAt.Equal(b.OccurredAt) {
		return false
	}
	nameA, schemaA := SplitType(a.Type)
	nameB, schemaB := SplitType(b.Type)
	if nameA != nameB || schemaA != schemaB {
		return false
	}
	if bytes.Equal(a.Data, b.Data) {
		return true
	}
	canonicalA, errA := canonicalJSON(a.Data)
	canonicalB, errB := canonicalJSON(b.Data)
	return errA == nil && errB == nil && bytes.Equal(canonicalA, canonicalB)
}

// canonicalJSON writes a value with sorted keys, no white space, and numbers as
// coefficient and exponent. RFC 8785 alone does not do: it takes numbers
// through float64. So numbers become strings first, told from strings by a letter in front.
func canonicalJSON(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true))
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch tok.Kind() {
		case '0':
			tok = jsontext.String("n" + canonicalNumber(tok.String()))
		case '"':
			tok = jsontext.String("s" + tok.String())
		}
		if err := enc.WriteToken(tok); err != nil {
			return nil, err
		}
	}
	canonical := jsontext.Value(bytes.TrimSpace(out.Bytes()))
	if err := canonical.Canonicalize(); err != nil {
		return nil, fmt.Errorf("canonicalising: %w", err)
	}
	return canonical, nil
}

// canonicalNumber writes a JSON number as sign, digits without zeros at either end, and exponent.
func canonicalNumber(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	mantissa, exponentText, _ := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent := new(big.Int)
	exponent.SetString(cmp.Or(strings.TrimPrefix(exponentText, "+"), "0"), 10)
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(trimmed))-int64(len(fraction))))
	return sign + trimmed + "e" + exponent.String()
}
