package projection

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// MaxDecidedVersions is how many versions one decision can pass.
const MaxDecidedVersions = 10_000

// DecisionKind says what an operator decided.
type DecisionKind string

// The kinds of decisions.
const (
	// DecisionSkip passes the version of a letter.
	DecisionSkip DecisionKind = "skip"
	// DecisionAcceptGap passes versions that never came.
	DecisionAcceptGap DecisionKind = "accept_gap"
	// DecisionSubstitute replaces the bytes of one record.
	DecisionSubstitute DecisionKind = "substitute"
)

// OperatorDecision is what an operator decided about an order. Decisions are
// an input of every fold of that order, beside its records: they take effect when
// the turn of their version comes, now or later.
type OperatorDecision struct {
	ID      int64
	OrderID string
	Kind    DecisionKind
	// From and To are the versions that are passed, both inclusive; of a substitute,
	// both are the version of its event.
	From, To int64
	// LetterID is the letter that gave rise to the decision, or 0; Log and Offset are where its record is.
	LetterID int64
	Log      TopicPartition
	Offset   int64
	// Digest is the RecordDigest of the record, zero for an accepted gap.
	Digest Digest
	// Substitute is the event that stands in for the record, as plain JSON.
	Substitute []byte
	// ByCoordinates is set for a record that does not say which version of which order
	// it is: only its coordinates tell it from another record with the same bytes.
	ByCoordinates bool

	By        By
	DecidedAt time.Time
	// Undone is who took the decision back, or nil.
	Undone   *By
	UndoneAt time.Time
}

// passes reports whether the decision passes a version without an event.
func (d *OperatorDecision) passes(version int64) bool {
	return d.Kind != DecisionSubstitute && d.From <= version && version <= d.To
}

// replaces reports whether the decision replaces the bytes of a record, which
// claims that version (0 when it claims none).
func (d *OperatorDecision) replaces(rec *Record, version int64, digest Digest) bool {
	if d.Kind != DecisionSubstitute || d.Digest != digest {
		return false
	}
	if d.ByCoordinates {
		return d.Log == rec.TopicPartition && d.Offset == rec.Offset
	}
	return d.From == version
}

// RecordDigest identifies what a record says: its value, and in the binary mode
// of CloudEvents the headers that belong to the event. It is the digest that a Decoder puts into
// the envelope.
func RecordDigest(r *Record) Digest {
	if formatOf(r) != formatBinary {
		return DigestOf(r.Value)
	}
	h := sha256.New()
	h.Write(r.Value)
	for i := range r.Headers {
		key := lowerASCII(r.Headers[i].Key)
		if !strings.HasPrefix(key, headerPrefix) {
			continue
		}
		for _, part := range [][]byte{[]byte(key), r.Headers[i].Value} {
			h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
			h.Write(part)
		}
	}
	return Digest(h.Sum(nil)[:DigestSize])
}

// substitute is the record as it is with its bytes replaced. The key stays,
// because it says which order the record belongs to; headers do not, because they may
// describe the format of the bytes that are replaced.
func (d *OperatorDecision) substitute(rec *Record) *Record {
	replaced := *rec
	replaced.Value, replaced.Headers = d.Substitute, nil
	return &replaced
}

// substituted returns the item as the decisions of its order have it: itself,
// or another one with the bytes of a substitute, which keeps the original's coordinates and
// digest, so that the original is a duplicate of it from then on.
func (w *work) substituted(decoder Decoder, it *item) *item {
	if len(w.decisions) == 0 || it.rec.Value == nil || it.rec.Control || it.blamed {
		return it
	}
	if s, ok := w.effective[it]; ok {
		return s
	}
	s := substituted(decoder, w.decisions, it)
	if w.effective == nil {
		w.effective = make(map[*item]*item)
	}
	w.effective[it] = s
	return s
}

func substituted(decoder Decoder, decisions []OperatorDecision, it *item) *item {
	version, digest := it.version(), RecordDigest(it.rec)
	for i := range decisions {
		d := &decisions[i]
		if !d.replaces(it.rec, version, digest) {
			continue
		}
		s := newItem(decoder, d.substitute(it.rec))
		s.rec = it.rec
		if s.invalid == nil {
			s.env.Digest = digest
		} else if s.invalid.Version == 0 { // was readable when it was decided, by another version of this program
			s.invalid.OrderID, s.invalid.Version = d.OrderID, d.From
		}
		s.orderID = d.OrderID
		return &s
	}
	return it
}

// substituteOf returns the event that stands in for the record of a ledger entry.
func (w *work) substituteOf(decoder Decoder, entry *LedgerEntry) *Envelope {
	for i := range w.decisions {
		d := &w.decisions[i]
		if d.Kind != DecisionSubstitute || d.From != entry.Version || d.Digest != entry.Digest {
			continue
		}
		rec := Record{Value: d.Substitute}
		if env, invalid := decode(decoder, &rec); invalid == nil && env.EventID == entry.EventID {
			return &env
		}
	}
	return nil
}

// pass skips the versions that operators decided to pass, as far as their turn has come.
func (w *work) pass() {
	for {
		next := w.row.Version + 1
		passed := false
		for i := range w.decisions {
			passed = passed || w.decisions[i].passes(next)
		}
		if !passed {
			return
		}
		w.appendEntry(LedgerEntry{Version: next, Type: TypeSkipped, State: w.row.State, Partition: -1, Offset: -1})
	}
}
