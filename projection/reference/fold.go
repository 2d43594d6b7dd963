package reference

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/orderprojector/orderprojector/projection"
)

// Fold decides records one after another, by the rules alone. The records of
// one partition come in offset order; as long as an order's records are in one
// partition, it does not matter how partitions are interleaved. A Fold is
// used by one goroutine at a time.
type Fold struct {
	orders     map[string]*history
	letters    []*DeadLetter
	partitions map[projection.TopicPartition]*Partition
	texts      map[string]string // type names, kept once

	substitutes map[Digest][]Decision // by the digest of the record that is replaced
}

// history is everything the fold remembers of one order.
type history struct {
	order     order
	version   int64
	ledger    []Entry         // ledger[i] is version i+1; only ever appended to
	canonical []Digest        // beside ledger: each event's canonical digest
	used      map[string]bool // event IDs in the ledger, once it is long
	at        Coordinates     // of the last applied event
	parked    []parkedEvent   // in the order in which they will be decided
	blocks    []*DeadLetter   // letters that hold the order back when their version is next
	passes    []Decision      // versions that operators passed
	decided   bool            // operators decided something about it
}

// parkedEvent keeps the decoded event, so that it can be decided without its bytes.
type parkedEvent struct {
	event  event
	digest Digest
	log    projection.TopicPartition
	offset int64
}

// NewFold returns a Fold of no records.
func NewFold() *Fold {
	return &Fold{
		orders:     map[string]*history{},
		partitions: map[projection.TopicPartition]*Partition{},
		texts:      map[string]string{},

		substitutes: map[Digest][]Decision{},
	}
}

// Advance says that everything of a log below next is known, though no record
// may have carried the offsets before it.
func (f *Fold) Advance(log projection.TopicPartition, next int64) {
	account := f.account(log)
	account.NextOffset = max(account.NextOffset, next)
}

func (f *Fold) account(log projection.TopicPartition) *Partition {
	account := f.partitions[log]
	if account == nil {
		account = &Partition{}
		f.partitions[log] = account
	}
	return account
}

// Add decides one record, returns its first decision and keeps nothing of the
// record's memory. The decision on a control record means nothing.
func (f *Fold) Add(record projection.Record) projection.Outcome {
	f.Advance(record.TopicPartition, record.Offset+1)
	if record.Control {
		return projection.Ignored
	}
	outcome := f.first(record)
	f.account(record.TopicPartition).Counts[outcome]++
	return outcome
}

func (f *Fold) first(record projection.Record) projection.Outcome {
	if record.Value == nil {
		return projection.Ignored
	}
	e, known, err := decode(record)
	if len(f.substitutes) > 0 {
		e, known, err = f.substitute(record, e, known, err)
	}
	if err != nil {
		letter := f.letter(record.TopicPartition, record.Offset, projection.Invalid, known)
		if known.claims {
			h := f.history(letter.OrderID)
			if letter.Blocks = letter.Version > h.version; letter.Blocks {
				h.blocks = append(h.blocks, letter)
			}
		}
		return projection.Invalid
	}
	h := f.history(e.orderID)
	p := parkedEvent{event: e, digest: recordDigest(record), log: record.TopicPartition, offset: record.Offset}
	outcome := h.judge(p)
	if outcome == projection.Parked {
		h.park(p)
		return outcome
	}
	f.settle(h, p, outcome)
	if outcome == projection.Applied {
		f.drain(h)
	}
	return outcome
}

func (f *Fold) history(orderID string) *history {
	h := f.orders[orderID]
	if h == nil {
		h = &history{}
		f.orders[strings.Clone(orderID)] = h
	}
	return h
}

// judge decides what an event means to its order now.
func (h *history) judge(p parkedEvent) projection.Outcome {
	e := p.event
	switch {
	case e.version <= h.version:
		entry, canonical := h.ledger[e.version-1], h.canonical[e.version-1]
		if entry.skipped() {
			return projection.Stale
		}
		if entry.EventID == e.eventID && (entry.Digest == p.digest || canonical == e.canonical) {
			return projection.Duplicate
		}
		return projection.Conflict
	case e.version > h.version+1:
		return projection.Parked
	case h.uses(e.eventID):
		return projection.Conflict
	case e.known == "":
		return projection.Unsupported
	}
	if _, ok := h.order.apply(e); !ok {
		return projection.Illegal
	}
	return projection.Applied
}

// settle carries out every decision but parking.
func (f *Fold) settle(h *history, p parkedEvent, outcome projection.Outcome) {
	e := p.event
	switch outcome {
	case projection.Applied:
		h.order, _ = h.order.apply(e)
		h.version = e.version
		h.at = Coordinates{p.log.Topic, p.log.Partition, p.offset}
		h.ledger = append(h.ledger, Entry{
			Version: e.version, EventID: e.eventID, Type: f.once(e.typeText), State: h.order.state,
			OccurredAt: e.occurredAt, Digest: p.digest, Partition: p.log.Partition, Offset: p.offset,
		})
		h.canonical = append(h.canonical, e.canonical)
		h.remember(e.eventID)
	case projection.Conflict:
		f.letter(p.log, p.offset, outcome, e.facts())
	case projection.Unsupported, projection.Illegal:
		letter := f.letter(p.log, p.offset, outcome, e.facts())
		letter.Blocks = true
		h.blocks = append(h.blocks, letter)
	}
}

// drain decides the parked events whose turn has come, lowest version first,
// until none is left: each decision may bring the turn of the next.
func (f *Fold) drain(h *history) {
	h.pass()
	for len(h.parked) > 0 && h.parked[0].event.version <= h.version+1 {
		p := h.parked[0]
		h.parked = h.parked[1:] // there may be a hundred thousand behind
		f.settle(h, p, h.judge(p))
		h.pass()
	}
}

// compareParked is the order in which parked events are decided.
func compareParked(p, q parkedEvent) int {
	return cmp.Or(
		cmp.Compare(p.event.version, q.event.version),
		cmp.Compare(p.log.Partition, q.log.Partition),
		cmp.Compare(p.offset, q.offset),
	)
}

// park keeps an event unless the same one waits already.
func (h *history) park(p parkedEvent) {
	first, _ := slices.BinarySearchFunc(h.parked, p.event.version, func(q parkedEvent, version int64) int {
		return cmp.Compare(q.event.version, version)
	})
	for _, q := range h.parked[first:] {
		if q.event.version != p.event.version {
			break
		}
		if q.event.eventID == p.event.eventID && q.digest == p.digest {
			return
		}
	}
	at, _ := slices.BinarySearchFunc(h.parked, p, compareParked)
	h.parked = slices.Insert(h.parked, at, p)
}

// longLedger is where looking an event ID up beats reading the ledger.
const longLedger = 64

func (h *history) uses(eventID string) bool {
	if h.used != nil {
		return h.used[eventID]
	}
	return slices.ContainsFunc(h.ledger, func(e Entry) bool { return e.EventID == eventID })
}

func (h *history) remember(eventID string) {
	switch {
	case h.used != nil:
		h.used[eventID] = true
	case len(h.ledger) >= longLedger:
		h.used = map[string]bool{}
		for _, e := range h.ledger {
			h.used[e.EventID] = true
		}
	}
}

func (f *Fold) letter(log projection.TopicPartition, offset int64, reason projection.Outcome, known facts) *DeadLetter {
	letter := &DeadLetter{
		Log: log, Offset: offset, Reason: reason,
		OrderID: known.orderID, Version: known.version, EventID: known.eventID,
	}
	f.letters = append(f.letters, letter)
	return letter
}

func (f *Fold) once(text string) string {
	kept, ok := f.texts[text]
	if !ok {
		kept = strings.Clone(text)
		f.texts[kept] = kept
	}
	return kept
}

// Result returns what the projection must hold after the records so far. The
// fold can go on afterwards.
func (f *Fold) Result() *Result {
	result := &Result{Partitions: make(map[projection.TopicPartition]Partition, len(f.partitions)), Decided: map[string]bool{}}
	for log, account := range f.partitions {
		result.Partitions[log] = *account
	}
	for id, h := range f.orders {
		if h.decided {
			result.Decided[id] = true
		}
		status := h.status()
		if h.version > 0 || status != "ok" {
			result.Orders = append(result.Orders, h.row(id, status))
		}
		for _, p := range h.parked {
			result.Parked = append(result.Parked, ParkedEvent{
				OrderID: id, Version: p.event.version, EventID: p.event.eventID, Digest: p.digest,
				At: Coordinates{p.log.Topic, p.log.Partition, p.offset},
			})
		}
	}
	for _, l := range f.letters {
		letter := *l
		letter.Status = Open
		if letter.Blocks && letter.Version <= f.orders[letter.OrderID].version {
			letter.Status = Superseded
		}
		result.DeadLetters = append(result.DeadLetters, letter)
	}
	slices.SortFunc(result.Orders, func(a, b Order) int { return strings.Compare(a.OrderID, b.OrderID) })
	slices.SortFunc(result.Parked, func(a, b ParkedEvent) int {
		return cmp.Or(strings.Compare(a.OrderID, b.OrderID), cmp.Compare(a.Version, b.Version),
			strings.Compare(a.EventID, b.EventID), bytes.Compare(a.Digest[:], b.Digest[:]))
	})
	slices.SortFunc(result.DeadLetters, func(a, b DeadLetter) int {
		return cmp.Or(strings.Compare(a.Log.Topic, b.Log.Topic), bytes.Compare(a.Log.TopicID[:], b.Log.TopicID[:]),
			cmp.Compare(a.Log.Partition, b.Log.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return result
}

// status: a letter for the next version blocks, otherwise whatever is parked waits.
func (h *history) status() string {
	for _, letter := range h.blocks {
		if letter.Version == h.version+1 {
			return "blocked"
		}
	}
	if len(h.parked) > 0 {
		return "waiting"
	}
	return "ok"
}

func (h *history) row(id, status string) Order {
	row := Order{
		OrderID: id, CustomerID: h.order.customerID, State: h.order.state, Version: h.version,
		Currency: h.order.currency, TotalMinor: h.order.total, PaidMinor: h.order.paid, RefundedMinor: h.order.refunded,
		Status: status, At: h.at,
	}
	if status != "ok" {
		row.WaitingForVersion = h.version + 1
	}
	if n := len(h.ledger); n > 0 {
		row.Ledger = h.ledger[:n:n]
		for _, e := range h.ledger {
			if !e.skipped() {
				row.CreatedAt = e.OccurredAt
				break
			}
		}
		for _, e := range slices.Backward(h.ledger) {
			if !e.skipped() {
				row.UpdatedAt, row.LastEventID = e.OccurredAt, e.EventID
				break
			}
		}
	}
	return row
}
