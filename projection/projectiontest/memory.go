package projectiontest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// Memory is a Store for simulations: serial transactions on maps, with faults
// where a real database has them.
type Memory struct {
	mu    sync.Mutex
	state state

	// BeforeCommit and AfterCommit, when they return an error, fail the
	// transaction before or after it has taken effect.
	BeforeCommit func() error
	AfterCommit  func() error
	// Refuse, when it returns an error, makes the database refuse a row: for its data with ErrData, for another reason of
	// the row's own with ErrRaised.
	Refuse func(*projection.Row) error
	// Timed makes held records due when their pauses end. Otherwise they are always due: time is no part of a simulation.
	Timed bool
}

// ErrConnection is the failure of a connection. ErrData is the database's
// refusal of some data. ErrRaised is an exception that a trigger raises. ErrLocked is a lock that another session holds for too long.
var (
	ErrConnection = errors.New("connection lost")
	ErrData       = errors.New("value refused")
	ErrRaised     = errors.New("exception raised")
	ErrLocked     = errors.New("lock not available")
)

type state struct {
	rows     map[string]*projection.Row
	archive  map[string]map[int64]projection.LedgerEntry
	parked   map[string][]*projection.ParkedEvent
	letters  []StoredLetter
	marks    map[projection.WatermarkKey]projection.Watermark
	lastMark []projection.WatermarkKey
	held     []projection.HeldRecord
	due      map[int64]time.Time // held records

	decisions []projection.OperatorDecision
	audit     []projection.AuditEntry
	jobs      []projection.RedriveJob
	lastID    int64 // of letters and decisions

	control control
}

// StoredLetter is a letter with its status.
type StoredLetter struct {
	projection.DeadLetter
	Status   string
	Attempts int
}

var _ projection.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{state: state{
		rows:    map[string]*projection.Row{},
		archive: map[string]map[int64]projection.LedgerEntry{},
		parked:  map[string][]*projection.ParkedEvent{},
		marks:   map[projection.WatermarkKey]projection.Watermark{},
		due:     map[int64]time.Time{},
	}}
}

func (s state) clone() state {
	c := state{
		rows: maps.Clone(s.rows), archive: maps.Clone(s.archive), parked: maps.Clone(s.parked),
		letters: slices.Clone(s.letters), held: slices.Clone(s.held), due: maps.Clone(s.due), marks: maps.Clone(s.marks), lastMark: slices.Clone(s.lastMark),
		decisions: slices.Clone(s.decisions), audit: slices.Clone(s.audit), jobs: slices.Clone(s.jobs), lastID: s.lastID,
		control: s.control.clone(),
	}
	for id, entries := range c.archive {
		c.archive[id] = maps.Clone(entries)
	}
	for id, events := range c.parked {
		c.parked[id] = slices.Clone(events)
	}
	return c
}

// Snapshot copies the store's content; Restore brings it back, as a database
// does that fails over to a copy that lost its last commits.
func (m *Memory) Snapshot() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.clone()
}

// Restore replaces the content by a snapshot.
func (m *Memory) Restore(snapshot any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = snapshot.(state).clone()
}

// Rows returns the projected rows, without those of version 0.
func (m *Memory) Rows() map[string]*projection.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := maps.Clone(m.state.rows)
	maps.DeleteFunc(rows, func(_ string, r *projection.Row) bool { return r.Version == 0 })
	return rows
}

// AllRows returns all rows, also those of version 0.
func (m *Memory) AllRows() map[string]*projection.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.state.rows)
}

// LedgerOf returns an order's whole ledger, archived entries first.
func (m *Memory) LedgerOf(orderID string) []projection.LedgerEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.ledgerOf(orderID)
}

func (s *state) ledgerOf(orderID string) []projection.LedgerEntry {
	var all []projection.LedgerEntry
	for _, e := range s.archive[orderID] {
		all = append(all, e)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Version < all[j].Version })
	if row := s.rows[orderID]; row != nil {
		all = append(all, row.Ledger...)
	}
	return all
}

// ParkedEvents returns every parked event.
func (m *Memory) ParkedEvents() []*projection.ParkedEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*projection.ParkedEvent
	for _, events := range m.state.parked {
		all = append(all, events...)
	}
	return all
}

// Letters returns every dead letter.
func (m *Memory) Letters() []StoredLetter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.state.letters)
}

// Watermark returns a partition's watermark.
func (m *Memory) Watermark(key projection.WatermarkKey) projection.Watermark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.marks[key]
}

// Classify implements projection.Store.
func (m *Memory) Classify(err error) projection.Failure {
	switch {
	case errors.Is(err, ErrData):
		return projection.BadData
	case errors.Is(err, ErrRaised):
		return projection.Unhealthy
	case errors.Is(err, ErrLocked):
		return projection.Locked
	}
	return projection.Transient
}

// InTx implements projection.Store.
func (m *Memory) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &memoryTx{m: m, state: m.state.clone()}
	if err := work(ctx, t); err != nil {
		return err
	}
	if m.BeforeCommit != nil {
		if err := m.BeforeCommit(); err != nil {
			return err
		}
	}
	m.state = t.state
	if m.AfterCommit != nil {
		return m.AfterCommit()
	}
	return nil
}

type memoryTx struct {
	m *Memory
	state
}

func (t *memoryTx) Watermark(_ context.Context, key projection.WatermarkKey) (projection.Watermark, bool, error) {
	w, found := t.marks[key]
	return w, found, nil
}

func (t *memoryTx) InsertWatermark(_ context.Context, key projection.WatermarkKey, nextOffset int64) error {
	if _, found := t.marks[key]; !found {
		t.marks[key] = projection.Watermark{NextOffset: nextOffset, Generation: 1}
		t.lastMark = append(t.lastMark, key)
	}
	return nil
}

func (t *memoryTx) OtherTopicIDs(_ context.Context, key projection.WatermarkKey) ([]projection.TopicID, error) {
	var others []projection.TopicID
	for _, other := range slices.Backward(t.lastMark) {
		if other.Group == key.Group && other.Topic == key.Topic && other.Partition == key.Partition && other.TopicID != key.TopicID {
			others = append(others, other.TopicID)
		}
	}
	return others, nil
}

func (t *memoryTx) AdvanceWatermark(_ context.Context, key projection.WatermarkKey, nextOffset int64, counts projection.Counts, _ int64) error {
	w, found := t.marks[key]
	if !found {
		return errors.New("the watermark is gone")
	}
	w.NextOffset = max(w.NextOffset, nextOffset)
	w.Counts.Add(counts)
	t.marks[key] = w
	return nil
}

func (t *memoryTx) Rows(_ context.Context, orderIDs []string) (map[string]*projection.Row, error) {
	found := map[string]*projection.Row{}
	for _, id := range orderIDs {
		if row := t.rows[id]; row != nil {
			found[id] = row
		}
	}
	return found, nil
}

func (t *memoryTx) LockRows(ctx context.Context, orderIDs []string) (map[string]*projection.Row, error) {
	for _, id := range orderIDs {
		if t.rows[id] == nil {
			t.rows[id] = &projection.Row{OrderID: id, Status: projection.StatusOK, Decided: len(t.decided(id)) > 0}
		}
	}
	return t.Rows(ctx, orderIDs)
}

func (t *memoryTx) Archive(_ context.Context, asked []projection.ArchiveKey) ([]projection.ArchivedEntry, error) {
	var found []projection.ArchivedEntry
	for _, a := range asked {
		for _, e := range t.archive[a.OrderID] {
			if e.Version == a.Version || e.EventID != "" && e.EventID == a.EventID {
				found = append(found, projection.ArchivedEntry{OrderID: a.OrderID, LedgerEntry: e})
			}
		}
	}
	return found, nil
}

func (t *memoryTx) Write(_ context.Context, writes []*projection.RowWrite) ([]bool, error) {
	held := make([]bool, len(writes))
	for i, w := range writes {
		stored := t.rows[w.Row.OrderID]
		if w.Insert && (stored != nil || len(t.decided(w.Row.OrderID)) > 0) ||
			!w.Insert && (stored == nil || stored.Version != w.BaseVersion || stored.Revision != w.BaseRevision) {
			continue
		}
		if t.m.Refuse != nil {
			if err := t.m.Refuse(w.Row); err != nil {
				return nil, err
			}
		}
		row := *w.Row
		var ledger []projection.LedgerEntry
		if stored != nil {
			ledger = slices.Clone(stored.Ledger)
		}
		row.Ledger = slices.Clip(append(ledger, w.Appended...)[len(w.Archive):]) // it is handed out more than once
		row.Archived = int64(len(w.Archive))
		if stored != nil {
			row.Archived += stored.Archived
			row.Decided = stored.Decided
		}
		t.rows[row.OrderID] = &row
		for _, e := range w.Archive {
			if t.archive[row.OrderID] == nil {
				t.archive[row.OrderID] = map[int64]projection.LedgerEntry{}
			}
			t.archive[row.OrderID][e.Version] = e
		}
		held[i] = true
	}
	return held, nil
}

func (t *memoryTx) Stuck(_ context.Context, orderIDs []string) (map[string]*projection.Stuck, error) {
	all := map[string]*projection.Stuck{}
	for _, id := range orderIDs {
		s := &projection.Stuck{}
		if events := t.parked[id]; len(events) > 0 {
			s.FirstParked = events[0].Version
		}
		for _, l := range t.letters {
			if l.OrderID == id && l.Blocks && open(l.Status) {
				s.Letters = append(s.Letters, projection.OpenLetter{ID: l.ID, Version: l.Version})
			}
		}
		if s.FirstParked > 0 || len(s.Letters) > 0 {
			all[id] = s
		}
	}
	return all, nil
}

func turnOf(a, b *projection.ParkedEvent) int {
	for _, c := range []int64{
		a.Version - b.Version, int64(a.Record.Partition - b.Record.Partition), a.Record.Offset - b.Record.Offset,
		int64(strings.Compare(a.EventID, b.EventID)), int64(slices.Compare(a.Digest[:], b.Digest[:])),
	} {
		if c != 0 {
			if c < 0 {
				return -1
			}
			return 1
		}
	}
	return 0
}

func (t *memoryTx) Parked(_ context.Context, orderID string, after *projection.ParkedEvent, limit int, maxBytes int64) (next []*projection.ParkedEvent, more bool, err error) {
	for _, p := range t.parked[orderID] {
		if after != nil && turnOf(p, after) <= 0 {
			continue
		}
		if len(next) == limit || maxBytes <= 0 {
			return next, true, nil
		}
		copied := *p
		next = append(next, &copied)
		maxBytes -= int64(len(p.Record.Value))
	}
	return next, false, nil
}

func sameParked(a, b *projection.ParkedEvent) bool {
	return a.Version == b.Version && a.EventID == b.EventID && a.Digest == b.Digest
}

func (t *memoryTx) Park(_ context.Context, _ string, events []*projection.ParkedEvent) error {
	for _, p := range events {
		kept := t.parked[p.OrderID]
		if slices.ContainsFunc(kept, func(k *projection.ParkedEvent) bool { return sameParked(k, p) }) {
			continue
		}
		copied := *p
		kept = append(slices.Clone(kept), &copied)
		slices.SortFunc(kept, turnOf)
		t.parked[p.OrderID] = kept
	}
	return nil
}

func (t *memoryTx) Unpark(_ context.Context, events []*projection.ParkedEvent) error {
	for _, p := range events {
		t.parked[p.OrderID] = slices.DeleteFunc(slices.Clone(t.parked[p.OrderID]),
			func(k *projection.ParkedEvent) bool { return sameParked(k, p) })
		if len(t.parked[p.OrderID]) == 0 {
			delete(t.parked, p.OrderID)
		}
	}
	return nil
}

func (t *memoryTx) AddLetters(_ context.Context, letters []*projection.DeadLetter) error {
	for _, l := range letters {
		status := "open"
		if l.Superseded {
			status = "superseded"
		}
		at := slices.IndexFunc(t.letters, func(s StoredLetter) bool {
			return s.Group == l.Group && s.Record.TopicPartition == l.Record.TopicPartition && s.Record.Offset == l.Record.Offset
		})
		if at < 0 {
			t.lastID++
			stored := StoredLetter{DeadLetter: *l, Status: status, Attempts: 1}
			stored.ID = t.lastID
			t.letters = append(t.letters, stored)
			continue
		}
		if known := &t.letters[at]; known.Status == "redriven" {
			id := known.ID
			known.DeadLetter, known.Status, known.Attempts = *l, status, known.Attempts+1
			known.ID = id
		}
	}
	return nil
}

func open(status string) bool { return status == "open" || status == "exhausted" }

func (t *memoryTx) Supersede(_ context.Context, letterIDs []int64) error {
	for i := range t.letters {
		if slices.Contains(letterIDs, t.letters[i].ID) && open(t.letters[i].Status) {
			t.letters[i].Status = "superseded"
		}
	}
	return nil
}

func (t *memoryTx) Drainable(_ context.Context, after string, limit int) (due []string, next string, err error) {
	candidates := map[string]bool{}
	for id := range t.parked {
		candidates[id] = true
	}
	for _, l := range t.letters {
		if l.Blocks && open(l.Status) && l.OrderID != "" {
			candidates[l.OrderID] = true
		}
	}
	ids := slices.Sorted(maps.Keys(candidates))
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after })
	if len(ids) > limit {
		ids, next = ids[:limit], ids[limit-1]
	}
	for _, id := range ids {
		version := int64(0)
		if row := t.rows[id]; row != nil {
			version = row.Version
		}
		isDue := len(t.parked[id]) > 0 && t.parked[id][0].Version <= version+1
		for _, l := range t.letters {
			beside := l.WasHeld && l.Version == version+1 && (t.rows[id] == nil || t.rows[id].Status != projection.StatusBlocked)
			isDue = isDue || l.OrderID == id && l.Blocks && open(l.Status) && (l.Version <= version || beside)
		}
		if isDue {
			due = append(due, id)
		}
	}
	return due, next, nil
}

func (t *memoryTx) TrySweepLock(context.Context) (bool, error) { return true, nil }
