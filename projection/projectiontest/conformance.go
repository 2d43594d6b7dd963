package projectiontest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// Conformance holds a store to what the Projector relies on. open returns an
// empty store of its own for each call.
func Conformance(t *testing.T, open func(t *testing.T) projection.Store) {
	for name, test := range map[string]func(*suite){
		"watermarks":              watermarks,
		"insert guard":            insertGuard,
		"update guard":            updateGuard,
		"rows come back whole":    rowsComeBack,
		"archive":                 archive,
		"more than a row's worth": archiveAtOnce,
		"locked rows exist":       lockedRows,
		"parked events":           parkedEvents,
		"letters":                 letters,
		"times of records":        recordTimes,
		"drainable orders":        drainable,
		"rollback":                rollback,
		"breaker":                 breaker,
		"held queues":             heldQueues,
		"held proofs":             heldProofs,
	} {
		t.Run(name, func(t *testing.T) { test(&suite{T: t, store: open(t)}) })
	}
}

type suite struct {
	*testing.T
	store projection.Store
}

func (s *suite) tx(work func(context.Context, projection.Tx)) {
	s.Helper()
	err := s.store.InTx(s.Context(), func(ctx context.Context, tx projection.Tx) error {
		work(ctx, tx)
		return nil
	})
	s.must(err)
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) equal(what string, want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(projection.ParkedEvent{})); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func key() projection.WatermarkKey {
	return projection.WatermarkKey{Group: "g", TopicPartition: projection.TopicPartition{Topic: "t", TopicID: projection.TopicID{7}, Partition: 3}}
}

func watermarks(s *suite) {
	s.tx(func(ctx context.Context, tx projection.Tx) {
		_, found, err := tx.Watermark(ctx, key())
		s.must(err)
		s.equal("found", false, found)
		s.must(tx.InsertWatermark(ctx, key(), 5))
		s.must(tx.InsertWatermark(ctx, key(), 9)) // there is one: it stays
		s.must(tx.AdvanceWatermark(ctx, key(), 20, projection.Counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0))
		s.must(tx.AdvanceWatermark(ctx, key(), 10, projection.Counts{1}, 0)) // never lower
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		w, found, err := tx.Watermark(ctx, key())
		s.must(err)
		s.equal("watermark", projection.Watermark{NextOffset: 20, Generation: 1, Counts: projection.Counts{2, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, w)
		s.equal("found", true, found)
		anew := key()
		anew.TopicID = projection.TopicID{8}
		others, err := tx.OtherTopicIDs(ctx, anew)
		s.must(err)
		s.equal("other topic IDs", []projection.TopicID{{7}}, others)
		others, err = tx.OtherTopicIDs(ctx, key())
		s.must(err)
		s.equal("other topic IDs of the only one", []projection.TopicID(nil), others)
		if err := tx.AdvanceWatermark(ctx, anew, 1, projection.Counts{}, 0); err == nil {
			s.Error("advanced a watermark that does not exist")
		}
	})
}

func at(second int) time.Time { return time.Date(2026, 1, 1, 10, 0, second, 123456000, time.UTC) }

func entry(version int64) projection.LedgerEntry {
	return projection.LedgerEntry{
		Version: version, EventID: fmt.Sprintf(`e-%d "quoted", {é}`, version), Type: "OrderAmended.v1", State: order.StatePending,
		OccurredAt: at(int(version % 60)), Digest: projection.Digest{byte(version)}, Partition: 3, Offset: 100 + version,
	}
}

func skipped(version int64) projection.LedgerEntry {
	return projection.LedgerEntry{Version: version, Type: projection.TypeSkipped, State: order.StatePending, Partition: -1, Offset: -1}
}

func rowOf(id string, version int64) *projection.Row {
	r := &projection.Row{
		OrderID: id, Version: version, CreatedAt: at(1), UpdatedAt: at(int(version % 60)), LastEventID: entry(version).EventID,
		Order:  order.Order{State: order.StatePending, CustomerID: "c'1", Currency: "EUR", TotalMinor: 1999, PaidMinor: 10, RefundedMinor: 5},
		Status: projection.StatusOK, Topic: "t", Partition: 3, Offset: 100 + version,
	}
	for v := int64(1); v <= version; v++ {
		r.Ledger = append(r.Ledger, entry(v))
	}
	return r
}

func insert(row *projection.Row) *projection.RowWrite {
	return &projection.RowWrite{Insert: true, Row: row, Appended: row.Ledger}
}

// extend appends one event to a row.
func extend(base *projection.Row) *projection.RowWrite {
	next := rowOf(base.OrderID, base.Version+1)
	next.Revision, next.Archived = base.Revision, base.Archived
	next.Ledger = append(slices.Clone(base.Ledger), entry(next.Version))
	w := &projection.RowWrite{BaseVersion: base.Version, BaseRevision: base.Revision, Row: next, Appended: next.Ledger[len(next.Ledger)-1:]}
	if surplus := len(next.Ledger) - projection.LedgerInRow; surplus > 0 {
		w.Archive, next.Ledger = next.Ledger[:surplus], next.Ledger[surplus:]
		next.Archived += int64(surplus)
	}
	return w
}

func (s *suite) write(ctx context.Context, tx projection.Tx, writes ...*projection.RowWrite) []bool {
	s.Helper()
	held, err := tx.Write(ctx, writes)
	s.must(err)
	return held
}

func insertGuard(s *suite) {
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.equal("first", []bool{true, true}, s.write(ctx, tx, insert(rowOf("a", 1)), insert(rowOf("b", 2))))
		s.equal("second", []bool{false, true}, s.write(ctx, tx, insert(rowOf("a", 2)), insert(rowOf("c", 1))))
		rows, err := tx.Rows(ctx, []string{"a", "b", "c", "d"})
		s.must(err)
		s.equal("rows", map[string]*projection.Row{"a": rowOf("a", 1), "b": rowOf("b", 2), "c": rowOf("c", 1)}, rows)
	})
}

func updateGuard(s *suite) {
	a := rowOf("a", 1)
	s.tx(func(ctx context.Context, tx projection.Tx) { s.write(ctx, tx, insert(a), insert(rowOf("b", 1))) })
	s.tx(func(ctx context.Context, tx projection.Tx) {
		older, other := *a, *a
		older.Version, older.Ledger = 0, nil
		other.Revision = 4
		gone := rowOf("z", 1)
		s.equal("held", []bool{false, false, false, true}, s.write(ctx, tx, extend(&older), extend(&other), extend(gone), extend(rowOf("b", 1))))
		rows, err := tx.Rows(ctx, []string{"a", "b", "z"})
		s.must(err)
		s.equal("rows", map[string]*projection.Row{"a": a, "b": rowOf("b", 2)}, rows)
	})
	s.tx(func(ctx context.Context, tx projection.Tx) { // a change of status raises the revision
		stuck := rowOf("a", 1)
		stuck.Status, stuck.Revision = projection.StatusBlocked, 1
		s.equal("status", []bool{true}, s.write(ctx, tx, &projection.RowWrite{BaseVersion: 1, Row: stuck}))
		s.equal("append on the old revision", []bool{false}, s.write(ctx, tx, extend(a)))
		rows, err := tx.Rows(ctx, []string{"a"})
		s.must(err)
		s.equal("rows", map[string]*projection.Row{"a": stuck}, rows)
	})
}

func rowsComeBack(s *suite) {
	ids := []string{"", "ä", "z\"'\\{}", strings.Repeat("x", 200)}
	var writes []*projection.RowWrite
	want := map[string]*projection.Row{}
	for i, id := range ids {
		r := rowOf(id, int64(i+1))
		r.Ledger[0] = skipped(1)
		writes, want[id] = append(writes, insert(r)), r
	}
	s.tx(func(ctx context.Context, tx projection.Tx) { s.write(ctx, tx, writes...) })
	s.tx(func(ctx context.Context, tx projection.Tx) {
		rows, err := tx.LockRows(ctx, ids)
		s.must(err)
		s.equal("rows", want, rows)
	})
}

func archive(s *suite) {
	row := rowOf("hot", 1)
	s.tx(func(ctx context.Context, tx projection.Tx) { s.write(ctx, tx, insert(row)) })
	for row.Version < projection.LedgerInRow+5 {
		w := extend(row)
		s.tx(func(ctx context.Context, tx projection.Tx) { s.equal("held", []bool{true}, s.write(ctx, tx, w)) })
		row = w.Row
	}
	s.tx(func(ctx context.Context, tx projection.Tx) {
		rows, err := tx.Rows(ctx, []string{"hot"})
		s.must(err)
		s.equal("row", row, rows["hot"])
		s.equal("entries in the row", projection.LedgerInRow, len(rows["hot"].Ledger))
		found, err := tx.Archive(ctx, []projection.ArchiveKey{
			{OrderID: "hot", Version: 3, EventID: "none"}, {OrderID: "hot", Version: 60, EventID: entry(5).EventID}, {OrderID: "cold", Version: 1},
		})
		s.must(err)
		slices.SortFunc(found, func(a, b projection.ArchivedEntry) int { return int(a.Version - b.Version) })
		s.equal("archived", []projection.ArchivedEntry{{OrderID: "hot", LedgerEntry: entry(3)}, {OrderID: "hot", LedgerEntry: entry(5)}}, found)
	})
}

func archiveAtOnce(s *suite) {
	row := rowOf("hot", projection.LedgerInRow+10)
	row.Ledger[9] = skipped(10)
	w := insert(row)
	w.Archive, row.Ledger, row.Archived = row.Ledger[:10], row.Ledger[10:], 10
	s.tx(func(ctx context.Context, tx projection.Tx) { s.equal("held", []bool{true}, s.write(ctx, tx, w)) })
	s.tx(func(ctx context.Context, tx projection.Tx) {
		rows, err := tx.Rows(ctx, []string{"hot"})
		s.must(err)
		s.equal("row", row, rows["hot"])
		found, err := tx.Archive(ctx, []projection.ArchiveKey{{OrderID: "hot", Version: 10}})
		s.must(err)
		s.equal("archived", []projection.ArchivedEntry{{OrderID: "hot", LedgerEntry: skipped(10)}}, found)
	})
}

func lockedRows(s *suite) {
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.write(ctx, tx, insert(rowOf("b", 1)))
		rows, err := tx.LockRows(ctx, []string{"a", "b"})
		s.must(err)
		s.equal("rows", map[string]*projection.Row{"a": {OrderID: "a", Status: projection.StatusOK}, "b": rowOf("b", 1)}, rows)
		s.equal("insert where one is reserved", []bool{false}, s.write(ctx, tx, insert(rowOf("a", 1))))
		s.equal("update of the reserved one", []bool{true}, s.write(ctx, tx, extend(&projection.Row{OrderID: "a"})))
	})
}

func parked(id string, version, offset int64, variant byte) *projection.ParkedEvent {
	return &projection.ParkedEvent{
		OrderID: id, Version: version, EventID: fmt.Sprintf("p-%d", version), Digest: projection.Digest{variant}, Type: "OrderPacked.v1", OccurredAt: at(3),
		Record: projection.Record{
			TopicPartition: key().TopicPartition, Offset: offset, Timestamp: at(4), Key: []byte(id), Value: []byte{0, 255, variant},
			Headers: []projection.Header{{Key: "trace", Value: []byte{}}, {Key: "trace"}, {Key: "trace", Value: []byte("x\x00")}, {Key: "\xff\x00", Value: []byte("y")}},
		},
	}
}

func parkedEvents(s *suite) {
	first, second, twin := parked("a", 3, 12, 1), parked("a", 5, 11, 1), parked("a", 3, 10, 2)
	noKey := parked("b", 9007199254740993, 13, 1)
	noKey.Record.Key, noKey.Record.Headers = nil, nil
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.must(tx.Park(ctx, "g", nil))
		s.must(tx.Park(ctx, "g", []*projection.ParkedEvent{second, first, twin, noKey}))
		s.must(tx.Park(ctx, "g", []*projection.ParkedEvent{parked("a", 3, 99, 1)})) // kept already
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		parked := func(what, id string, after *projection.ParkedEvent, limit int, maxBytes int64, wantMore bool, want ...*projection.ParkedEvent) {
			events, more, err := tx.Parked(ctx, id, after, limit, maxBytes)
			s.must(err)
			s.equal(what, want, events)
			s.equal(what+": more", wantMore, more)
		}
		const unbounded = 1 << 40
		size := int64(len(twin.Record.Value))
		parked("in the order of their turns", "a", nil, 10, unbounded, false, twin, first, second)
		parked("all that there are", "a", nil, 3, unbounded, false, twin, first, second)
		parked("next page", "a", twin, 1, unbounded, true, first)
		parked("as many bytes as are allowed", "a", nil, 10, size+1, true, twin, first)
		parked("one that is too large by itself", "a", nil, 10, 1, true, twin)
		huge, _, err := tx.Parked(ctx, "b", nil, 10, unbounded)
		s.must(err)
		s.equal("null key, exact version", []*projection.ParkedEvent{noKey}, huge)
		stuck, err := tx.Stuck(ctx, []string{"a", "b", "c"})
		s.must(err)
		s.equal("stuck", map[string]*projection.Stuck{"a": {FirstParked: 3}, "b": {FirstParked: 9007199254740993}}, stuck)
		s.must(tx.Unpark(ctx, []*projection.ParkedEvent{twin, noKey}))
		parked("rest", "a", nil, 10, unbounded, false, first, second)
	})
}

// KafkaTimes are numbers of milliseconds that the timestamp of a Kafka record can be, out of ordinary years and not.
func KafkaTimes() []int64 {
	times := []int64{-1, 0, 1, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1, 1 << 58, 1_760_000_000_123_456_789}
	for _, year := range []int{-300_000, -4714, -4713, -4712, 0, 1600, 1677, 2262, 2300, 9999, 10_000, 294_246, 294_247, 294_276, 294_277, 300_000} {
		times = append(times, time.Date(year, time.July, 1, 12, 0, 0, 1e6, time.UTC).UnixMilli())
	}
	return times
}

// recordTimes: a Kafka timestamp is a number of milliseconds, and comes back as it was, whatever it is.
func recordTimes(s *suite) {
	var events []*projection.ParkedEvent
	for i, millis := range KafkaTimes() {
		p := parked("a", int64(i+2), int64(i), 1)
		p.Record.Timestamp = time.UnixMilli(millis)
		events = append(events, p)
	}
	s.tx(func(ctx context.Context, tx projection.Tx) { s.must(tx.Park(ctx, "g", events)) })
	s.tx(func(ctx context.Context, tx projection.Tx) {
		got, _, err := tx.Parked(ctx, "a", nil, len(events)+1, 1<<40)
		s.must(err)
		s.equal("parked events", events, got)
		for i, p := range got {
			s.equal("milliseconds", KafkaTimes()[i], p.Record.Timestamp.UnixMilli())
		}
	})
}

func letter(offset int64, id string, version int64, blocks bool) *projection.DeadLetter {
	rec := parked(id, 1, offset, 1).Record
	return &projection.DeadLetter{
		Group: "g", Record: rec, OrderID: id, Version: version, EventID: "e", Reason: projection.Illegal, Detail: "why \x00 \xff not", Blocks: blocks,
	}
}

func letters(s *suite) {
	nothing := letter(4, "", 0, false)
	nothing.EventID, nothing.Record.Key, nothing.Record.Value = "", nil, []byte{}
	overtaken := letter(5, "a", 1, true)
	overtaken.Superseded = true
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.must(tx.AddLetters(ctx, []*projection.DeadLetter{letter(1, "a", 2, true), letter(2, "a", 9, false), letter(3, "b", 7, true), nothing, overtaken}))
		s.must(tx.AddLetters(ctx, []*projection.DeadLetter{letter(1, "c", 2, true)})) // its record has one
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		stuck, err := tx.Stuck(ctx, []string{"a", "b", "c"})
		s.must(err)
		if len(stuck) != 2 || len(stuck["a"].Letters) != 1 || stuck["a"].Letters[0].Version != 2 || stuck["b"].Letters[0].Version != 7 {
			s.Fatalf("stuck: %+v", stuck)
		}
		s.must(tx.Supersede(ctx, []int64{stuck["a"].Letters[0].ID}))
		stuck, err = tx.Stuck(ctx, []string{"a"})
		s.must(err)
		s.equal("after it was overtaken", 0, len(stuck))
	})
}

func drainable(s *suite) {
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.write(ctx, tx, insert(rowOf("a", 1)), insert(rowOf("b", 1)), insert(rowOf("c", 4)))
		s.must(tx.Park(ctx, "g", []*projection.ParkedEvent{parked("a", 2, 1, 1), parked("a", 3, 2, 1), parked("b", 3, 3, 1), parked("x", 1, 4, 1), parked("y", 2, 5, 1)}))
		s.must(tx.AddLetters(ctx, []*projection.DeadLetter{letter(6, "c", 4, true), letter(7, "b", 2, true)}))
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		due, next, err := tx.Drainable(ctx, "", 10)
		s.must(err)
		s.equal("due", []string{"a", "c", "x"}, due)
		s.equal("next", "", next)
		due, next, err = tx.Drainable(ctx, "", 2)
		s.must(err)
		s.equal("first two", []string{"a"}, due)
		s.equal("next", "b", next)
		due, _, err = tx.Drainable(ctx, next, 10)
		s.must(err)
		s.equal("the others", []string{"c", "x"}, due)
		mine, err := tx.TrySweepLock(ctx)
		s.must(err)
		s.equal("sweep lock", true, mine)
	})
}

func rollback(s *suite) {
	stop := errors.New("stop")
	err := s.store.InTx(s.Context(), func(ctx context.Context, tx projection.Tx) error {
		s.write(ctx, tx, insert(rowOf("a", 1)))
		s.must(tx.InsertWatermark(ctx, key(), 1))
		s.must(tx.Park(ctx, "g", []*projection.ParkedEvent{parked("a", 3, 1, 1)}))
		s.must(tx.AddLetters(ctx, []*projection.DeadLetter{letter(1, "a", 2, true)}))
		return stop
	})
	if !errors.Is(err, stop) {
		s.Fatalf("got %v, want the error of the work", err)
	}
	s.tx(func(ctx context.Context, tx projection.Tx) {
		rows, err := tx.Rows(ctx, []string{"a"})
		s.must(err)
		_, found, err := tx.Watermark(ctx, key())
		s.must(err)
		stuck, err := tx.Stuck(ctx, []string{"a"})
		s.must(err)
		s.equal("left over", []int{0, 0}, []int{len(rows), len(stuck)})
		s.equal("watermark", false, found)
	})
}
