package reference

import (
	"slices"

	"github.com/orderprojector/orderprojector/projection"
)

// Decision is what an operator decided about an order: either versions that
// are passed without an event, or an event that stands in for a record.
type Decision struct {
	OrderID  string
	From, To int64 // versions that are passed; of a substitute, both its version
	// Substitute replaces the record that has this digest and which
	// claims that version or, ByCoordinates, is exactly there.
	Substitute    []byte
	Digest        Digest
	ByCoordinates bool
	Log           projection.TopicPartition
	Offset        int64
}

// Decide tells the fold what an operator decided. It holds for the records to
// come, and for what is parked. The rows that a fold ends with are a function of its records and
// decisions, whenever those were told; first decisions and letters are not.
func (f *Fold) Decide(d Decision) {
	h := f.history(d.OrderID)
	h.decided = true
	if d.Substitute != nil {
		f.substitutes[d.Digest] = append(f.substitutes[d.Digest], d)
		return
	}
	h.passes = append(h.passes, d)
	f.drain(h)
}

// substitute returns the record as operators have it, with what it says.
func (f *Fold) substitute(record projection.Record, e event, known facts, err error) (event, facts, error) {
	for _, d := range f.substitutes[recordDigest(record)] {
		claimed := int64(0)
		if known.claims {
			claimed = known.version
		}
		if err == nil {
			claimed = e.version
		}
		if d.ByCoordinates {
			if claimed != 0 || d.Log != record.TopicPartition || d.Offset != record.Offset {
				continue
			}
		} else if claimed != d.From || (err == nil && e.orderID != d.OrderID) || (err != nil && known.orderID != d.OrderID) {
			continue
		}
		record.Value, record.Headers = d.Substitute, nil // headers describe the bytes that are replaced
		return decode(record)
	}
	return e, known, err
}

// pass adds an entry for every next version that operators passed.
func (h *history) pass() {
	for slices.ContainsFunc(h.passes, func(d Decision) bool { return d.From <= h.version+1 && h.version+1 <= d.To }) {
		h.version++
		h.ledger = append(h.ledger, Entry{Version: h.version, Type: "skipped", State: h.order.state, Partition: -1, Offset: -1})
		h.canonical = append(h.canonical, Digest{})
	}
}

func (e Entry) skipped() bool { return e.EventID == "" }

// AllowsLetter reports whether a stored letter may have its status where the
// fold has expected, or no letter when that is nil. What operators closed need not be in the fold, and
// of an order that they decided about, neither need what the decision would have spared.
func (r *Result) AllowsLetter(expected *DeadLetter, stored DeadLetter) bool {
	decided := r.Decided[stored.OrderID]
	switch stored.Status {
	case "open", "exhausted":
		if expected == nil {
			return decided && !stored.Blocks
		}
		return expected.Status == Open
	case "redriven": // of equal records, only the first is parked
		return expected == nil || decided
	case "discarded":
		return true
	case Superseded:
		if expected == nil {
			return decided
		}
		return expected.Status == Superseded || decided && expected.Version <= r.version(stored.OrderID)
	}
	return false
}

// AllowsMissing reports whether a letter of the fold need not be stored.
func (r *Result) AllowsMissing(expected *DeadLetter) bool { return r.Decided[expected.OrderID] }

func (r *Result) version(orderID string) int64 {
	if o := r.Order(orderID); o != nil {
		return o.Version
	}
	return 0
}
