package projection

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"unicode/utf8"
)

// Parked events of an order that are in memory at once, at most.
const (
	parkedPerStep = 256
	parkedBytes   = 4 << 20
)

// budget is how many parked events a turn may still decide, and how many bytes of records. What is due
// beyond the budget stays parked for the next turn.
type budget struct {
	events int
	bytes  int64
}

// turnEvents is how many parked events one transaction decides, whoever begins it: so few that it ends long before its deadline.
// Simulations decide fewer.
var turnEvents = 1000

func turnBudget() budget { return budget{events: turnEvents, bytes: 8 << 20} }

// unbounded is the budget of a fold in memory.
func unbounded() budget { return budget{events: math.MaxInt, bytes: math.MaxInt64} }

func (b *budget) spent() bool { return b.events <= 0 || b.bytes <= 0 }

func (b *budget) spend(p *ParkedEvent) {
	b.events--
	b.bytes -= int64(len(p.Record.Value))
}

// turn decides events inside one transaction and collects what is to be
// written. The orders of a turn are decided on what memory and one read say where that is
// enough, and on their locked rows otherwise.
type turn struct {
	tx      Tx
	group   string
	decoder Decoder
	sorted  []*work // by order ID
	batch   *batch  // nil for a sweep
	// mark is the watermark. A record below it has its place already, which
	// may be the letter or the parked event of an equal record, or a letter that was purged: read
	// again, it can still be applied or parked, but it makes no new letter.
	mark int64

	at          *work // the order that is being decided
	archived    map[string]map[int64]*LedgerEntry
	archivedIDs map[string]map[string]*LedgerEntry
	older       map[coordinate]*Envelope // records read again; nil when gone
	missing     map[coordinate]struct{}  // records to read again before this turn can be decided

	budget budget // for parked events
	// careful makes every order be decided on its locked row.
	careful bool
	// blamed holds parked events that the database refused when tried alone, with the reason.
	blamed map[coordinate]string
	// drained, when it is not nil, takes what became of the parked events whose turn came.
	drained *[]DrainedEvent
}

// DrainedEvent is a parked event whose turn came.
type DrainedEvent struct {
	OrderID string  `json:"order_id"`
	Version int64   `json:"version"`
	EventID string  `json:"event_id"`
	Type    string  `json:"type"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"` // why, of an outcome that made a dead letter
}

var _ Ledger = (*turn)(nil)

// Archived implements Ledger.
func (t *turn) Archived(orderID string, version int64) *LedgerEntry {
	return t.archived[orderID][version]
}

// ArchivedID implements Ledger.
func (t *turn) ArchivedID(orderID, eventID string) *LedgerEntry {
	return t.archivedIDs[orderID][eventID]
}

// Older implements Ledger: the batch itself may hold the record, or it was read
// again. A record with other bytes than the ledger's digest says is not the one it
// was made from: a topic that was created anew holds others at the same offsets,
// and may hold there the very one that is being decided.
func (t *turn) Older(entry *LedgerEntry) (*Envelope, bool) {
	if t.batch != nil && len(t.batch.items) > 0 && t.batch.items[0].rec.Partition == entry.Partition {
		if it := t.batch.at(entry.Offset); it != nil && it.invalid == nil && isOf(&it.env, entry) {
			return &it.env, true
		}
	}
	if env := t.at.substituteOf(t.decoder, entry); env != nil {
		return env, true
	}
	env, known := t.older[coordinate{entry.Partition, entry.Offset}]
	if env != nil && env.Unreadable == "" && !isOf(env, entry) {
		env = nil
	}
	return env, known
}

// isOf reports whether a ledger entry was made from this event.
func isOf(env *Envelope, entry *LedgerEntry) bool {
	return env.EventID == entry.EventID && env.Digest == entry.Digest
}

// decide asks Decide, and notes the older record when that is what it takes.
func (t *turn) decide(w *work, env *Envelope) Decision {
	t.at = w
	d := Decide(w.row, env, t)
	if d.Older != nil {
		if t.missing == nil {
			t.missing = make(map[coordinate]struct{})
		}
		t.missing[coordinate{d.Older.Partition, d.Older.Offset}] = struct{}{}
	}
	return d
}

func (t *turn) checkOlder() error {
	if len(t.missing) == 0 {
		return nil
	}
	needed := &errOlderNeeded{}
	for c := range t.missing {
		needed.coordinates = append(needed.coordinates, c)
	}
	slices.SortFunc(needed.coordinates, func(a, b coordinate) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return needed
}

// run decides and writes everything of the turn but the watermark.
func (t *turn) run(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	if err := t.loadArchive(ctx, t.sorted); err != nil {
		return err
	}
	var slow []*work
	for _, w := range t.sorted {
		if !t.decideFast(w) {
			slow = append(slow, w)
		}
	}
	if err := t.checkOlder(); err != nil {
		return err
	}
	if err := t.decideLocked(ctx, slow); err != nil {
		return err
	}
	lost, err := t.write(ctx, t.sorted)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		// Somebody else was faster with these orders: decide them again on their locked rows.
		if err := t.decideLocked(ctx, lost); err != nil {
			return err
		}
		if still, err := t.write(ctx, lost); err != nil {
			return err
		} else if len(still) > 0 {
			return errGuardMissed
		}
	}
	if err := t.lookBehind(ctx); err != nil {
		return err
	}
	return t.keep(ctx)
}

// decideFast decides an order's events on what memory says, which is enough for
// appends and repeats: the guard of the write catches everything else. It
// reports false when the order has to be decided on its locked row.
func (t *turn) decideFast(w *work) bool {
	if w.base != nil && (w.base.Status != StatusOK || w.base.Decided) || t.batch == nil || t.careful {
		return false
	}
	for _, it := range w.items {
		if it.invalid != nil {
			return false
		}
		d := t.decide(w, &it.env)
		switch {
		case d.Outcome == Applied:
			w.append(&it.env, it.rec, d.Next)
		case d.Outcome == Duplicate, d.Older != nil: // the turn is run again once it is known
		default:
			return false
		}
		it.outcome = d.Outcome
	}
	return true
}

// decideLocked decides orders on their locked rows, with all that may hold them back.
func (t *turn) decideLocked(ctx context.Context, works []*work) error {
	if len(works) == 0 {
		return nil
	}
	if err := t.lock(ctx, works); err != nil {
		return err
	}
	for _, w := range works {
		if err := t.drain(ctx, w); err != nil { // whatever an earlier writer left
			return err
		}
		for _, it := range w.items {
			if err := t.decideItem(ctx, w, it); err != nil {
				return err
			}
		}
		w.settle()
	}
	return t.checkOlder()
}

// lock locks the rows of orders and reads everything that deciding on them takes.
func (t *turn) lock(ctx context.Context, works []*work) error {
	rows, err := t.tx.LockRows(ctx, idsOf(works))
	if err != nil {
		return fmt.Errorf("locking orders: %w", err)
	}
	for _, w := range works {
		w.reset(rows[w.orderID], true)
	}
	if err := t.loadDecisions(ctx, works); err != nil {
		return err
	}
	if err := t.loadStuck(ctx, works); err != nil {
		return err
	}
	return t.loadArchive(ctx, works)
}

func (t *turn) decideItem(ctx context.Context, w *work, original *item) error {
	it := w.substituted(t.decoder, original)
	defer func() { original.outcome = it.outcome }()
	if w.unfinished && it.version() > w.row.Version {
		// Parked events come first, and are beyond the budget.
		return &errUndrained{w.orderID, coordinate{it.rec.Partition, it.rec.Offset}}
	}
	if it.invalid != nil {
		if it.rec.Offset >= t.mark {
			t.refuse(w, it)
		}
		return nil
	}
	d := t.decide(w, &it.env)
	it.outcome = d.Outcome
	switch {
	case d.Outcome == Applied:
		w.append(&it.env, it.rec, d.Next)
		return t.drain(ctx, w)
	case d.Outcome == Parked:
		w.parkItem(it)
	case d.Outcome.DeadLetters() && it.rec.Offset >= t.mark:
		w.keep(t.letter(it.rec, &it.env, d))
	}
	return nil
}

// refuse keeps the letter of an invalid record. It holds its order back only if the version it names is still to come.
func (t *turn) refuse(w *work, it *item) {
	letter := invalidLetter(t.group, it)
	letter.Blocks = it.invalid.Version > w.row.Version
	w.keep(letter)
}

func invalidLetter(group string, it *item) *DeadLetter {
	letter := &DeadLetter{
		Group: group, Record: *it.rec, Reason: Invalid, Detail: it.invalid.Detail,
		OrderID: it.invalid.OrderID, EventID: it.invalid.EventID, Version: it.invalid.Version,
	}
	if letter.OrderID == "" && checkID("key", string(it.rec.Key)) == nil && utf8.Valid(it.rec.Key) {
		letter.OrderID = string(it.rec.Key)
	}
	return letter
}

func (t *turn) letter(rec *Record, env *Envelope, d Decision) *DeadLetter {
	return &DeadLetter{
		Group: t.group, Record: *rec, OrderID: env.OrderID, Version: env.Version, EventID: env.EventID, Type: env.Type,
		Reason: d.Outcome, Detail: d.Detail, Blocks: d.Outcome != Conflict,
	}
}

// drain decides the parked events whose turn has come, within the turn's budget.
func (t *turn) drain(ctx context.Context, w *work) error {
	for w.pass(); ; w.pass() {
		if t.budget.spent() {
			w.unfinished = w.isDue() || w.due()
			return nil
		}
		if w.due() {
			if err := t.loadParked(ctx, w); err != nil {
				return err
			}
		}
		p := w.takeDue()
		if p == nil {
			w.unfinished = false
			return nil
		}
		t.budget.spend(p)
		original := newItem(t.decoder, &p.Record)
		it := substituted(t.decoder, w.decisions, &original)
		if why, ok := t.blamed[coordinate{p.Record.Partition, p.Record.Offset}]; ok {
			it.refuse(&DecodeError{Detail: why, OrderID: p.OrderID, EventID: p.EventID, Version: p.Version})
		}
		if it.invalid != nil {
			t.refuse(w, it)
			t.note(p, Invalid, it.invalid.Detail)
			continue
		}
		d := t.decide(w, &it.env)
		switch {
		case d.Outcome == Applied:
			w.append(&it.env, it.rec, d.Next)
		case d.Outcome.DeadLetters():
			w.keep(t.letter(it.rec, &it.env, d))
		}
		t.note(p, d.Outcome, d.Detail)
	}
}

func (t *turn) note(p *ParkedEvent, outcome Outcome, detail string) {
	if t.drained != nil {
		*t.drained = append(*t.drained, DrainedEvent{p.OrderID, p.Version, p.EventID, p.Type, outcome, detail})
	}
}

// loadParked reads the next window of an order's parked events.
func (t *turn) loadParked(ctx context.Context, w *work) error {
	if err := t.tx.Park(ctx, t.group, w.beyond); err != nil {
		return fmt.Errorf("parking events: %w", err)
	}
	w.beyond = nil
	var after *ParkedEvent
	if len(w.unparked) > 0 {
		after = w.unparked[len(w.unparked)-1]
	}
	next, more, err := t.tx.Parked(ctx, w.orderID, after, min(parkedPerStep, t.budget.events), parkedBytes)
	if err != nil {
		return fmt.Errorf("reading parked events: %w", err)
	}
	for _, p := range next {
		p.stored = true
	}
	w.parked, w.more = next, more
	if w.more && len(next) > 0 {
		w.first = next[len(next)-1].Version
	}
	return t.loadArchive(ctx, []*work{w})
}

// loadDecisions reads what operators decided about orders.
func (t *turn) loadDecisions(ctx context.Context, works []*work) error {
	var decided []*work
	for _, w := range works {
		if w.row.Decided {
			decided = append(decided, w)
		}
	}
	if len(decided) == 0 {
		return nil
	}
	decisions, err := t.tx.Decisions(ctx, idsOf(decided))
	if err != nil {
		return fmt.Errorf("reading operators' decisions: %w", err)
	}
	for _, w := range decided {
		w.decisions = decisions[w.orderID]
	}
	return nil
}

// loadStuck reads what holds orders back.
func (t *turn) loadStuck(ctx context.Context, works []*work) error {
	stuck, err := t.tx.Stuck(ctx, idsOf(works))
	if err != nil {
		return fmt.Errorf("reading what holds orders back: %w", err)
	}
	for _, w := range works {
		if s := stuck[w.orderID]; s != nil {
			w.take(s)
		}
	}
	return nil
}

func (w *work) take(s *Stuck) {
	w.more, w.first, w.open = s.FirstParked > 0, s.FirstParked, s.Letters
}

// loadArchive reads the archived entries that deciding may need: those of the
// versions and event IDs at hand, for orders that have archived entries at all.
func (t *turn) loadArchive(ctx context.Context, works []*work) error {
	var asked []ArchiveKey
	for _, w := range works {
		if w.row.Archived == 0 {
			continue
		}
		for _, it := range w.items {
			if it := w.substituted(t.decoder, it); it.invalid == nil {
				asked = append(asked, ArchiveKey{w.orderID, it.env.Version, it.env.EventID})
			}
		}
		for _, p := range w.parked {
			asked = append(asked, ArchiveKey{w.orderID, p.Version, p.EventID})
		}
	}
	if len(asked) == 0 {
		return nil
	}
	found, err := t.tx.Archive(ctx, asked)
	if err != nil {
		return fmt.Errorf("reading archived ledger entries: %w", err)
	}
	if t.archived == nil {
		t.archived = make(map[string]map[int64]*LedgerEntry)
		t.archivedIDs = make(map[string]map[string]*LedgerEntry)
	}
	for i := range found {
		e := &found[i]
		if t.archived[e.OrderID] == nil {
			t.archived[e.OrderID] = make(map[int64]*LedgerEntry)
			t.archivedIDs[e.OrderID] = make(map[string]*LedgerEntry)
		}
		t.archived[e.OrderID][e.Version] = &e.LedgerEntry
		if e.EventID != "" {
			t.archivedIDs[e.OrderID][e.EventID] = &e.LedgerEntry
		}
	}
	return nil
}

// write writes the changed rows and returns the works whose guard was missed.
func (t *turn) write(ctx context.Context, works []*work) (lost []*work, err error) {
	memory := make([]RowWrite, 0, len(works)) // never more, so that pointers stay right
	writes := make([]*RowWrite, 0, len(works))
	changed := make([]*work, 0, len(works))
	for _, w := range works {
		if rw, ok := w.write(); ok {
			memory = append(memory, rw)
			writes, changed = append(writes, &memory[len(memory)-1]), append(changed, w)
		}
	}
	if len(writes) == 0 {
		return nil, nil
	}
	held, err := t.tx.Write(ctx, writes)
	if err != nil {
		return nil, fmt.Errorf("writing orders: %w", err)
	}
	for i, w := range changed {
		switch {
		case held[i]:
			w.written()
		case w.locked:
			return nil, errGuardMissed
		default:
			lost = append(lost, w)
		}
	}
	return lost, nil
}

// lookBehind looks, in a statement after the write, for parked events and open
// letters of the orders that were appended to on the strength of memory.
func (t *turn) lookBehind(ctx context.Context) error {
	var appended []*work
	for _, w := range t.sorted {
		if !w.locked && w.base != nil && w.touched() {
			appended = append(appended, w)
		}
	}
	if len(appended) == 0 {
		return nil
	}
	stuck, err := t.tx.Stuck(ctx, idsOf(appended))
	if err != nil {
		return fmt.Errorf("reading what holds orders back: %w", err)
	}
	if len(stuck) == 0 {
		return nil
	}
	var behind []*work
	for _, w := range appended {
		if s := stuck[w.orderID]; s != nil {
			w.locked = true // by the write
			w.take(s)
			behind = append(behind, w)
		}
	}
	if err := t.loadArchive(ctx, behind); err != nil {
		return err
	}
	for _, w := range behind {
		if err := t.drain(ctx, w); err != nil {
			return err
		}
		w.settle()
	}
	if err := t.checkOlder(); err != nil {
		return err
	}
	lost, err := t.write(ctx, behind)
	if err == nil && len(lost) > 0 {
		err = errGuardMissed
	}
	return err
}

// touched reports whether the turn applied one of the order's events.
func (w *work) touched() bool {
	return slices.ContainsFunc(w.items, func(it *item) bool { return it.outcome == Applied })
}

// keep writes what goes beside the rows: parked events and letters.
func (t *turn) keep(ctx context.Context) error {
	var park, unpark []*ParkedEvent
	var letters []*DeadLetter
	var overtaken []int64
	for _, w := range t.sorted {
		park = append(park, w.newlyParked()...)
		unpark = append(unpark, w.unparked...)
		letters = append(letters, w.letters...)
		overtaken = append(overtaken, w.overtake...)
	}
	if t.batch != nil {
		for i := range t.batch.items {
			if it := &t.batch.items[i]; it.invalid != nil && it.orderID == "" && it.rec.Offset >= t.mark {
				letters = append(letters, invalidLetter(t.group, it))
			}
		}
	}
	if len(unpark) > 0 {
		if err := t.tx.Unpark(ctx, unpark); err != nil {
			return fmt.Errorf("removing parked events: %w", err)
		}
	}
	if len(park) > 0 {
		if err := t.tx.Park(ctx, t.group, park); err != nil {
			return fmt.Errorf("parking events: %w", err)
		}
	}
	if len(letters) > 0 {
		if err := t.tx.AddLetters(ctx, letters); err != nil {
			return fmt.Errorf("writing dead letters: %w", err)
		}
	}
	if len(overtaken) > 0 {
		if err := t.tx.Supersede(ctx, overtaken); err != nil {
			return fmt.Errorf("closing overtaken letters: %w", err)
		}
	}
	return nil
}

// unfinished returns the orders whose next parked event is due, but beyond the budget.
func (t *turn) unfinished() []string {
	var ids []string
	for _, w := range t.sorted {
		if w.unfinished {
			ids = append(ids, w.orderID)
		}
	}
	return ids
}

func idsOf(works []*work) []string {
	ids := make([]string, len(works))
	for i, w := range works {
		ids[i] = w.orderID
	}
	return ids
}
