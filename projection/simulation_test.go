package projection_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/projection/reference"
)

const simGroup = "sim"

// world is a topic, a store and the members that read the one into the other.
// One random source decides everything, so that a seed repeats a run exactly.
type world struct {
	rnd       *rand.Rand
	topic     string
	logs      [][]projection.Record
	committed []int64
	store     *projectiontest.Memory
	members   []*member // by partition
	zombies   []*member // lost their partition and do not know it
	snapshots []any
	fail      func() error
	operated  bool           // operators may act
	moving    bool           // keys move between partitions; only faults that no order of reading changes
	sick      map[string]int // orders whose rows the store refuses, so many times more
}

// member is the owner of one partition.
type member struct {
	partition int32
	handler   projection.PartitionHandler
	projector *projection.Projector
	position  int64
	above     int64
}

var errCrash = errors.New("crash")

func newWorld(rnd *rand.Rand, partitions int) *world {
	w := &world{rnd: rnd, topic: "orders", store: projectiontest.NewMemory()}
	w.logs = make([][]projection.Record, partitions)
	w.committed = make([]int64, partitions)
	for i := range w.committed {
		w.committed[i] = projection.NoOffset
	}
	w.members = make([]*member, partitions)
	w.sick = map[string]int{}
	w.store.Refuse = func(r *projection.Row) error {
		if w.sick[r.OrderID] > 0 {
			w.sick[r.OrderID]--
			return projectiontest.ErrRaised
		}
		return nil
	}
	return w
}

func (w *world) tp(partition int32) projection.TopicPartition {
	return projection.TopicPartition{Topic: w.topic, TopicID: projection.TopicID{1}, Partition: partition}
}

// ReadRecords implements projection.RecordReader.
func (w *world) ReadRecords(_ context.Context, tp projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	log := w.logs[tp.Partition]
	for _, offset := range offsets {
		i, exists := slices.BinarySearchFunc(log, offset, func(r projection.Record, o int64) int { return cmp.Compare(r.Offset, o) })
		if exists {
			found(log[i])
		}
	}
	return nil
}

func (w *world) append(partition int32, key, value []byte, control bool) {
	log := w.logs[partition]
	next := int64(0)
	if len(log) > 0 {
		next = log[len(log)-1].Offset + 1 + int64(w.rnd.IntN(2)) // offsets have holes where transactions were aborted
	}
	w.logs[partition] = append(log, projection.Record{
		TopicPartition: w.tp(partition), Offset: next, Key: key, Value: value, Control: control,
		Timestamp: time.Unix(1_700_000_000+next, 0),
	})
}

// assign gives a partition to a new member, as after a crash or a rebalance.
func (w *world) assign(t testing.TB, ctx context.Context, partition int32) {
	projector, err := projection.NewProjector(projection.ProjectorConfig{
		Group: simGroup, Store: w.store, Older: w, RetryBase: time.Nanosecond, RetryCap: time.Nanosecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	log := w.logs[partition]
	end := int64(0)
	if len(log) > 0 {
		end = log[len(log)-1].Offset + 1
	}
	handler, start, err := projector.Assign(ctx, projection.Assignment{
		TopicPartition: w.tp(partition), Group: simGroup, Committed: w.committed[partition], LogStart: 0, LogEnd: end,
	})
	if err != nil {
		return // crashed while assigning: the partition has no owner
	}
	w.members[partition] = &member{partition, handler, projector, start.Offset, start.CommitAbove}
}

// work lets a member handle the next few records.
func (w *world) work(t testing.TB, m *member) (alive bool) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if w.fail != nil {
		fail := w.fail
		w.store.BeforeCommit, w.store.AfterCommit = w.faults(fail, cancel)
		defer func() { w.store.BeforeCommit, w.store.AfterCommit = nil, nil }()
	}
	log := w.logs[m.partition]
	from, _ := slices.BinarySearchFunc(log, m.position, func(r projection.Record, o int64) int { return cmp.Compare(r.Offset, o) })
	records := slices.Clone(log[from:min(len(log), from+1+w.rnd.IntN(12))])
	if len(records) == 0 {
		return m.handler.Check(ctx) == nil
	}
	err := m.handler.Handle(ctx, records)
	if rewind := (*projection.RewindError)(nil); errors.As(err, &rewind) {
		m.handler.Close()
		return false
	}
	if err != nil {
		return false
	}
	m.position = records[len(records)-1].Offset + 1
	return true
}

// faults fail a transaction before or after its commit, by losing the connection or by
// killing the member.
func (w *world) faults(fail func() error, crash context.CancelCauseFunc) (before, after func() error) {
	draw := func() error {
		err := fail()
		if errors.Is(err, errCrash) {
			crash(errCrash)
		}
		return err
	}
	return draw, draw
}

func (w *world) commit(m *member) {
	if w.members[m.partition] == m && m.position > m.above && m.position > w.committed[m.partition] {
		w.committed[m.partition] = m.position
	}
}

// event is the body of one event of an order's history.
func simEvent(orderID string, version int, variant string, spaces bool) []byte {
	types := []struct{ name, data string }{
		{"OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"}%s}`},
		{"OrderAmended.v1", `{"total":{"amount":"30.00","currency":"EUR"}%s}`},
		{"OrderPaid.v1", `{"payment_id":"p-1","amount":{"amount":30,"currency":"EUR"}%s}`},
		{"OrderPacked", `{"by":"x"%s}`},
		{"OrderShipped.v1", `{"carrier":"dhl","tracking_number":"t-1"%s}`},
		{"OrderRefunded.v1", `{"refund_id":"r-1","amount":{"amount":"10.00","currency":"EUR"}%s}`},
		{"OrderDelivered.v1", `{"n":1.0%s}`},
		{"OrderReturned.v1", `{"reason":"broken"%s}`},
		{"OrderRefunded.v1", `{"refund_id":"r-2","amount":{"amount":"20.00","currency":"EUR"}%s}`},
	}
	typ := types[(version-1)%len(types)]
	extra, id := "", fmt.Sprintf("%s-e%d", orderID, version)
	switch variant {
	case "content":
		extra = `,"extra":true`
	case "id":
		id += "x"
	case "reused-id":
		id = fmt.Sprintf("%s-e%d", orderID, max(1, version-2))
	case "illegal":
		typ = types[0]
	case "unknown":
		typ.name = "OrderGiftWrapped"
	case "schema":
		typ.name = "OrderShipped.v99"
	case "money":
		typ = types[1]
		typ.data = `{"total":{"amount":"19.995","currency":"EUR"}%s}`
	}
	sep := ""
	if spaces {
		sep = " \n"
	}
	return fmt.Appendf(nil, `{"event_id":%q,%s"order_id":%q,"version":%d,"type":%q,%s"occurred_at":"2026-01-01T10:00:%02d.1234567Z","data":%s}`,
		id, sep, orderID, version, typ.name, sep, version, fmt.Sprintf(typ.data, extra))
}

// traffic fills the logs: histories with everything that goes wrong on the way.
func (w *world) traffic(orders, records int) {
	progress, moved := make([]int, orders), make([]int, orders)
	for range records {
		o := w.rnd.IntN(orders)
		id := fmt.Sprintf("o-%d", o)
		partition := int32(o % len(w.logs))
		if w.moving {
			// Partitions are added now and then: the order goes on in another one.
			if w.rnd.IntN(12) == 0 {
				moved[o]++
			}
			partition = int32((o + moved[o]) % len(w.logs))
		}
		version := progress[o] + 1
		variant, spaces := "", false
		kind := w.rnd.IntN(16)
		if w.moving && (kind == 3 || kind == 4 || kind == 5) {
			kind = 15 // which of two contradicting events comes first would depend on who reads faster
		}
		switch kind {
		case 0: // again
			version = max(1, version-1-w.rnd.IntN(3))
		case 1: // again, written anew
			version, spaces = max(1, version-1-w.rnd.IntN(3)), true
		case 2: // ahead
			version += 1 + w.rnd.IntN(3)
		case 3:
			version = max(1, version-w.rnd.IntN(3))
			variant = []string{"content", "id", "reused-id"}[w.rnd.IntN(3)]
		case 4:
			variant = []string{"illegal", "unknown", "schema", "money"}[w.rnd.IntN(4)]
			version += w.rnd.IntN(2)
		case 5:
			bad := [][]byte{nil, {}, []byte("null"), []byte("{}"), []byte("[]"), []byte(`{"order_id":`), []byte("\xff"),
				[]byte(`{"order_id":"o-9","event_id":"e","version":1}`),
				fmt.Appendf(nil, `{"order_id":%q,"event_id":"e","version":%d}`, id, version),
				fmt.Appendf(nil, `{"order_id":%q,"event_id":"e","version":3.0}`, id)}
			w.append(partition, []byte(id), bad[w.rnd.IntN(len(bad))], false)
			continue
		case 6:
			w.append(partition, nil, []byte("commit"), true)
			continue
		default:
			progress[o]++
		}
		key := []byte(id)
		if w.rnd.IntN(20) == 0 {
			key = nil
		}
		w.append(partition, key, simEvent(id, version, variant, spaces), false)
	}
}

// run interleaves work, crashes, fail-overs, zombies and rewinds until
// everything is read, then lets the members finish in peace.
func (w *world) run(t testing.TB, steps int) {
	faults := w.rnd.IntN(128) // each run picks its own kinds of fault
	w.fail = func() error {
		switch n := w.rnd.IntN(12); {
		case n == 0 && faults&1 != 0:
			return projectiontest.ErrConnection
		case n == 1 && faults&2 != 0:
			return errCrash
		}
		return nil
	}
	for range steps {
		p := int32(w.rnd.IntN(len(w.logs)))
		m := w.members[p]
		switch action := w.rnd.IntN(20); {
		case m == nil:
			w.assign(t, t.Context(), p)
		case action == 0 && faults&4 != 0: // rebalance: the old owner does not notice
			w.zombies = append(w.zombies, m)
			w.members[p] = nil
		case (action == 1 || action > 16) && len(w.zombies) > 0:
			// A zombie ends when it learns that it is late.
			if i := w.rnd.IntN(len(w.zombies)); !w.work(t, w.zombies[i]) {
				w.zombies = slices.Delete(w.zombies, i, i+1)
			}
		case action == 2 && faults&8 != 0: // the operator rewinds the group
			w.committed[p] = int64(w.rnd.IntN(int(max(1, w.committed[p]))))
			w.members[p] = nil
		case action == 3 && faults&16 != 0:
			w.snapshots = append(w.snapshots, w.store.Snapshot())
		case action == 4 && faults&16 != 0 && len(w.snapshots) > 0: // fail-over, under running members
			w.store.Restore(w.snapshots[w.rnd.IntN(len(w.snapshots))])
		case action < 9 && action > 5 && w.operated:
			w.operate(t)
		case action == 5 && faults&32 != 0:
			if _, err := m.projector.SweepOnce(t.Context()); err != nil && !errors.Is(err, projectiontest.ErrRaised) {
				t.Fatal(err)
			}
		case action == 9 && faults&64 != 0: // somebody's trigger does not like an order for a while
			w.sick[fmt.Sprintf("o-%d", w.rnd.IntN(4))] = 1 + w.rnd.IntN(12)
		case action == 10 && faults&64 != 0:
			_, _ = m.projector.RetryHeldOnce(t.Context())
		default:
			if w.work(t, m) {
				w.commit(m)
			} else {
				w.members[p] = nil
			}
		}
	}
	w.fail = nil
	clear(w.sick)
	for p := range w.logs {
		for done := false; !done; {
			if w.members[p] == nil {
				w.assign(t, t.Context(), int32(p))
			}
			m := w.members[p]
			if !w.work(t, m) {
				w.members[p] = nil
				continue
			}
			w.commit(m)
			log := w.logs[p]
			done = len(log) == 0 || m.position > log[len(log)-1].Offset
		}
	}
	last := w.members[0].projector
	for rounds := 0; len(w.store.HeldRecords()) > 0; rounds++ {
		if _, err := last.RetryHeldOnce(t.Context()); err != nil || rounds == 20 {
			t.Fatalf("%d records are still held: %v", len(w.store.HeldRecords()), err)
		}
	}
	if _, err := last.SweepAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

type wantRow struct {
	State, Status, LastEvent, Customer, Currency string
	Version, Total, Paid, Refunded, Waiting      int64
	Created, Updated                             time.Time
	Partition                                    int32
	Offset                                       int64
}

type wantLetter struct {
	Partition      int32
	Offset         int64
	Order, Event   string
	Version        int64
	Reason, Status string
	Blocks         bool
}

// compare holds the store against an independent fold of the logs.
func (w *world) compare(t testing.TB) {
	fold := reference.NewFold()
	for _, d := range w.store.Decisions() {
		fold.Decide(reference.Decision{
			OrderID: d.OrderID, From: d.From, To: d.To, Substitute: d.Substitute, Digest: reference.Digest(d.Digest),
			ByCoordinates: d.ByCoordinates, Log: d.Log, Offset: d.Offset,
		})
	}
	operated := len(w.store.Audited()) > 0
	for _, log := range w.logs {
		for _, r := range log {
			fold.Add(r)
		}
	}
	want := fold.Result()

	wantRows, gotRows := map[string]wantRow{}, map[string]wantRow{}
	for i := range want.Orders {
		o := want.Orders[i]
		if w.moving { // which of two equal events is the first depends on who reads faster
			o.At.Partition, o.At.Offset = 0, 0
		}
		wantRows[o.OrderID] = wantRow{o.State, o.Status, o.LastEventID, o.CustomerID, o.Currency, o.Version, o.TotalMinor, o.PaidMinor,
			o.RefundedMinor, o.WaitingForVersion, o.CreatedAt, o.UpdatedAt, o.At.Partition, o.At.Offset}
		if diff := gocmp.Diff(w.ledger(ledgerOf(o.Ledger)), w.ledger(w.store.LedgerOf(o.OrderID))); diff != "" {
			t.Errorf("ledger of %s (-want +got):\n%s", o.OrderID, diff)
		}
	}
	for id, r := range w.store.AllRows() {
		if r.Version == 0 && r.Status == projection.StatusOK {
			continue // reserved for a letter about a later version
		}
		if w.moving {
			copied := *r
			r = &copied
			r.Partition, r.Offset = 0, 0
		}
		gotRows[id] = wantRow{string(r.State), string(r.Status), r.LastEventID, r.CustomerID, r.Currency, r.Version, r.TotalMinor, r.PaidMinor,
			r.RefundedMinor, r.WaitingFor(), r.CreatedAt, r.UpdatedAt, r.Partition, r.Offset}
		if len(r.Ledger) > projection.EntriesInRow() || int64(len(r.Ledger))+r.Archived != r.Version {
			t.Errorf("%s: %d entries in the row and %d archived at version %d", id, len(r.Ledger), r.Archived, r.Version)
		}
	}
	if diff := gocmp.Diff(wantRows, gotRows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}

	wantLetters, gotLetters := map[string]wantLetter{}, map[string]wantLetter{}
	stored := map[string]projectiontest.StoredLetter{}
	place := func(partition int32, offset int64) string { return fmt.Sprint(partition, offset) }
	for _, l := range w.store.Letters() {
		if w.moving { // of equal records in several partitions, one or all are letters: it depends on who reads faster
			l.Record.Partition, l.Record.Offset = int32(l.Version), 0
			stored[l.EventID] = l
			continue
		}
		stored[place(l.Record.Partition, l.Record.Offset)] = l
	}
	for _, l := range want.DeadLetters {
		at := place(l.Log.Partition, l.Offset)
		if w.moving {
			at, l.Log.Partition, l.Offset = l.EventID, int32(l.Version), 0
		}
		got, found := stored[at]
		status := l.Status
		switch {
		case operated && !found && want.AllowsMissing(&l):
			continue
		case operated && found && want.AllowsLetter(&l, folded(got)):
			if want.Decided[got.OrderID] && !projection.LetterStatus(got.Status).Waits() {
				delete(stored, at)
				continue
			}
			status = got.Status
		}
		wantLetters[at] = wantLetter{l.Log.Partition, l.Offset, l.OrderID, l.EventID, l.Version, l.Reason.String(), status, l.Blocks}
	}
	for at, l := range stored {
		if _, wanted := wantLetters[at]; !wanted && operated && want.AllowsLetter(nil, folded(l)) {
			continue
		}
		gotLetters[at] = wantLetter{l.Record.Partition, l.Record.Offset, l.OrderID, l.EventID, l.Version, l.Reason.String(), l.Status, l.Blocks}
	}
	if diff := gocmp.Diff(wantLetters, gotLetters); diff != "" {
		t.Errorf("letters (-want +got):\n%s", diff)
	}

	var wantParked, gotParked []string
	// Where operators substitute equal events for equal records, the first to be substituted is parked, whatever its offset.
	anyPlace := w.moving || operated
	for _, p := range want.Parked {
		if anyPlace {
			p.At.Partition, p.At.Offset = 0, 0
		}
		wantParked = append(wantParked, fmt.Sprint(p.OrderID, p.Version, p.EventID, projection.Digest(p.Digest), p.At.Partition, p.At.Offset))
	}
	for _, p := range w.store.ParkedEvents() {
		if anyPlace {
			p.Record.Partition, p.Record.Offset = 0, 0
		}
		gotParked = append(gotParked, fmt.Sprint(p.OrderID, p.Version, p.EventID, p.Digest, p.Record.Partition, p.Record.Offset))
	}
	slices.Sort(wantParked)
	slices.Sort(gotParked)
	if diff := gocmp.Diff(wantParked, gotParked); diff != "" {
		t.Errorf("parked events (-want +got):\n%s", diff)
	}

	for p := range w.logs {
		tp := w.tp(int32(p))
		got := w.store.Watermark(projection.WatermarkKey{Group: simGroup, TopicPartition: tp})
		// What an event is decided at first depends on when operators act, and on who reads faster.
		if operated || w.moving {
			if want.Partitions[tp].Counts.Total() != got.Counts.Total() {
				t.Errorf("records of partition %d: got %d, want %d", p, got.Counts.Total(), want.Partitions[tp].Counts.Total())
			}
		} else if diff := gocmp.Diff(want.Partitions[tp].Counts, got.Counts); diff != "" {
			t.Errorf("counts of partition %d (-want +got):\n%s", p, diff)
		}
		if got.NextOffset != want.Partitions[tp].NextOffset {
			t.Errorf("watermark of partition %d: got %d, want %d", p, got.NextOffset, want.Partitions[tp].NextOffset)
		}
	}
}

// ledger leaves out of entries what depends on who reads faster.
func (w *world) ledger(entries []projection.LedgerEntry) []projection.LedgerEntry {
	if w.moving {
		for i := range entries {
			entries[i].Partition, entries[i].Offset, entries[i].Digest = 0, 0, projection.Digest{}
		}
	}
	return entries
}

func folded(l projectiontest.StoredLetter) reference.DeadLetter {
	return reference.DeadLetter{OrderID: l.OrderID, Version: l.Version, Blocks: l.Blocks, Status: l.Status}
}

func ledgerOf(entries []reference.Entry) []projection.LedgerEntry {
	var all []projection.LedgerEntry
	for _, e := range entries {
		all = append(all, projection.LedgerEntry{
			Version: e.Version, EventID: e.EventID, Type: e.Type, State: order.State(e.State), OccurredAt: e.OccurredAt,
			Digest: projection.Digest(e.Digest), Partition: e.Partition, Offset: e.Offset,
		})
	}
	return all
}

// Every run of the tests checks the same thousand cases. `make test-long` checks many others.
func init() {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// simulate runs a simulation as a property: with the rows' bounds as they are, or small.
func simulate(t *testing.T, orders, records, steps int, prepare func(*world)) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		if rapid.Bool().Draw(rt, "small bounds") {
			defer projection.Shrink(rapid.IntRange(1, 4).Draw(rt, "entries in a row"), rapid.IntRange(1, 3).Draw(rt, "events in a turn"))()
		}
		w := newWorld(rand.New(rand.NewPCG(seed, 1)), rapid.IntRange(1, 3).Draw(rt, "partitions"))
		prepare(w)
		// Because rapid prefers small numbers, half of the cases are made large.
		fewestRecords, fewestSteps := 1, 0
		if rapid.Bool().Draw(rt, "large") {
			fewestRecords, fewestSteps = records/2, steps/2
		}
		w.traffic(rapid.IntRange(1, orders).Draw(rt, "orders"), rapid.IntRange(fewestRecords, records).Draw(rt, "records"))
		tb := &reporter{TB: t, rt: rt}
		w.run(tb, rapid.IntRange(fewestSteps, steps).Draw(rt, "steps"))
		w.compare(tb)
	})
}

// TestAnyInterleavingEndsInTheSameRows is the property that the projector
// exists for: whatever is duplicated, reordered, refused, held, crashed, rewound or
// lost by a fail-over on the way, every row, letter and count comes out as an independent fold
// of the topic has it.
func TestAnyInterleavingEndsInTheSameRows(t *testing.T) {
	simulate(t, 6, 120, 600, func(*world) {})
}

// TestAnyInterleavingWithMovingKeys adds partitions in the middle: an order's events are in several
// partitions, and are read in any order.
func TestAnyInterleavingWithMovingKeys(t *testing.T) {
	simulate(t, 6, 120, 600, func(w *world) { w.moving = true })
}

// TestAnyInterleavingWithOperators adds people, who skip, substitute, discard, redrive,
// accept, repair and undo at any moment: the rows are a function of the records and of the decisions
// that stand in the end.
func TestAnyInterleavingWithOperators(t *testing.T) {
	simulate(t, 4, 120, 800, func(w *world) { w.operated = true })
}

// reporter sends failures to rapid, which then looks for a smaller case.
type reporter struct {
	testing.TB
	rt *rapid.T
}

func (r *reporter) Errorf(format string, args ...any) { r.rt.Errorf(format, args...) }
func (r *reporter) Fatal(args ...any)                 { r.rt.Fatal(args...) }
func (r *reporter) Fatalf(format string, args ...any) { r.rt.Fatalf(format, args...) }
