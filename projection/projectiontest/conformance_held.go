package projectiontest

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orderprojector/orderprojector/projection"
)

func held(offset int64, id string, version int64) *projection.HeldRecord {
	return &projection.HeldRecord{
		Record: parked(id, version, offset, 1).Record, OrderID: id, EventID: "e", Version: version, Type: "OrderPacked.v1",
		Cause: "why", Class: projection.HeldQueued,
	}
}

// heldQueues checks how held records are kept, taken and left.
func heldQueues(s *suite) {
	other := key()
	other.Partition = 4
	elsewhere := held(9, "a", 4)
	elsewhere.Record.Partition = other.Partition
	nameless := held(20, "", 0)
	nameless.EventID, nameless.Type, nameless.Record.Key, nameless.Record.Headers = "", "", nil, nil
	s.tx(func(ctx context.Context, tx projection.Tx) {
		open, err := tx.Hold(ctx, "g", []*projection.HeldRecord{held(11, "a", 3), held(10, "a", 2), held(12, "b", 2)})
		s.must(err)
		s.equal("open", int64(3), open)
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		again := held(10, "a", 2)
		again.Cause = "it is held already and stays as it is"
		open, err := tx.Hold(ctx, "g", []*projection.HeldRecord{again, elsewhere, nameless})
		s.must(err)
		s.equal("open", int64(5), open)
		for k, want := range map[projection.WatermarkKey]map[string]bool{
			key(): {"a": true, "b": true}, other: {"a": true},
		} {
			orders, err := tx.HeldOrders(ctx, k, []string{"a", "b", "c"})
			s.must(err)
			s.equal("orders with held records", want, orders)
		}
	})

	take := func() (h *projection.HeldRecord) {
		s.Helper()
		s.tx(func(ctx context.Context, tx projection.Tx) {
			var err error
			h, err = tx.TakeHeld(ctx, "g")
			s.must(err)
		})
		return h
	}
	lock := func(id int64) (h *projection.HeldRecord) {
		s.Helper()
		s.tx(func(ctx context.Context, tx projection.Tx) {
			var err error
			h, err = tx.LockHeld(ctx, "g", id)
			s.must(err)
		})
		return h
	}
	same := func(what string, want, got *projection.HeldRecord) {
		s.Helper()
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(projection.HeldRecord{}, "ID", "HeldAt")); diff != "" {
			s.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// Each head once, in the order in which they were due. What is postponed comes behind the others.
	var heads []*projection.HeldRecord
	for range 4 {
		h := take()
		if h == nil {
			s.Fatalf("only %d heads", len(heads))
		}
		if since := time.Since(h.HeldAt); since < -time.Minute || since > time.Hour {
			s.Errorf("held at %v", h.HeldAt)
		}
		heads = append(heads, h)
		s.tx(func(ctx context.Context, tx projection.Tx) {
			h.Failures, h.Counted, h.Cause, h.Class = 3, 2, "another \x00 cause", "infrastructure"
			s.must(tx.Postpone(ctx, h, 0))
		})
	}
	offsets := map[int64]*projection.HeldRecord{}
	for _, h := range heads {
		offsets[h.Record.Offset] = h
	}
	for _, want := range []*projection.HeldRecord{held(10, "a", 2), held(12, "b", 2), elsewhere, nameless} {
		got := offsets[want.Record.Offset]
		if got == nil {
			s.Fatalf("offset %d is the head of a queue, and was not taken", want.Record.Offset)
		}
		stored := lock(got.ID)
		if stored == nil || stored.Failures != 3 || stored.Counted != 2 || stored.Class != "infrastructure" || stored.HeldAt.Sub(got.HeldAt).Abs() > time.Millisecond {
			s.Errorf("postponed: %+v", stored)
		}
		want.Failures, want.Counted, want.Class, want.Cause = 3, 2, "infrastructure", got.Cause
		same("the head", want, got)
	}
	if h := lock(1 << 40); h != nil {
		s.Errorf("locked what does not exist: %+v", h)
	}

	// The second of a queue becomes the head when the first has left it.
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.must(tx.InsertWatermark(ctx, key(), 0))
		for _, h := range []*projection.HeldRecord{offsets[10], offsets[12], offsets[9], offsets[20]} {
			s.must(tx.Release(ctx, h))
		}
	})
	last := take()
	same("behind the released head", held(11, "a", 3), last)
	s.tx(func(ctx context.Context, tx projection.Tx) {
		orders, err := tx.HeldOrders(ctx, key(), []string{"a", "b"})
		s.must(err)
		s.equal("orders with held records", map[string]bool{"a": true}, orders)
		s.must(tx.Release(ctx, last))
	})
	if h := take(); h != nil {
		s.Errorf("still held: %+v", h)
	}
}

// heldProofs checks what proves that other orders can be written.
func heldProofs(s *suite) {
	stop := errors.New("stop")
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.write(ctx, tx, insert(rowOf("a", 1)), insert(rowOf("b", 3)))
		_, err := tx.Hold(ctx, "g", []*projection.HeldRecord{held(5, "b", 4)})
		s.must(err)
	})
	touched := func(want bool, orderID string, nth int) {
		s.Helper()
		s.tx(func(ctx context.Context, tx projection.Tx) {
			got, err := tx.TouchOther(ctx, "g", orderID, nth)
			s.must(err)
			s.equal("another order than "+orderID+" was touched", want, got)
		})
	}
	touched(false, "a", 0) // b has a held record
	touched(true, "b", 0)
	touched(true, "c", 0)
	touched(false, "c", 1)
	s.tx(func(ctx context.Context, tx projection.Tx) { s.write(ctx, tx, insert(rowOf("c", 1))) })
	touched(true, "a", 0)
	touched(false, "a", 1)
	touched(true, "d", 1)

	s.tx(func(ctx context.Context, tx projection.Tx) {
		err := tx.Trial(ctx, func(ctx context.Context) error {
			s.write(ctx, tx, insert(rowOf("d", 1)))
			return nil
		})
		s.must(err)
		if err := tx.Trial(ctx, func(context.Context) error { return stop }); !errors.Is(err, stop) {
			s.Errorf("a trial that failed: %v", err)
		}
		s.write(ctx, tx, insert(rowOf("e", 1))) // the transaction goes on
	})
	s.tx(func(ctx context.Context, tx projection.Tx) {
		rows, err := tx.Rows(ctx, []string{"a", "b", "c", "d", "e"})
		s.must(err)
		s.equal("rows", map[string]*projection.Row{"a": rowOf("a", 1), "b": rowOf("b", 3), "c": rowOf("c", 1), "e": rowOf("e", 1)}, rows)
		for id, want := range map[string]int64{"b": 3, "none": 0, "nul \x00": 0} {
			version, err := tx.StoredVersion(ctx, id)
			s.must(err)
			s.equal("stored version of "+id, want, version)
		}
		locked, err := tx.LockedElsewhere(ctx, []string{"a", "b", "none"})
		s.must(err)
		s.equal("locked elsewhere", []string(nil), locked)
	})
}
