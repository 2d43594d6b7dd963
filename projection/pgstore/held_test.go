package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// Whatever looks for work or for a proof passes over what another session has locked, and does not wait.
func TestHeldRecordsPassOverLocks(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	projected(t, store, "a", "b", "c")
	log := projection.TopicPartition{Topic: "orders", TopicID: projection.TopicID{1}}
	held := func(offset int64, id string) *projection.HeldRecord {
		return &projection.HeldRecord{Record: projection.Record{TopicPartition: log, Offset: offset, Key: []byte(id)}, OrderID: id, EventID: "e", Version: 2, Class: projection.HeldQueued}
	}
	inTx := func(work func(context.Context, projection.Tx) error) {
		t.Helper()
		if err := store.InTx(t.Context(), work); err != nil {
			t.Fatal(err)
		}
	}
	inTx(func(ctx context.Context, tx projection.Tx) error {
		_, err := tx.Hold(ctx, "g", []*projection.HeldRecord{held(10, "x"), held(11, "x"), held(12, "y")})
		return err
	})

	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	for _, sql := range []string{
		`SELECT FROM held_records WHERE order_id = 'x' AND kafka_offset = 10 FOR UPDATE`, `SELECT FROM order_rows WHERE order_id IN ('a', 'b') FOR UPDATE`,
	} {
		if _, err := other.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	inTx(func(ctx context.Context, tx projection.Tx) error {
		h, err := tx.TakeHeld(ctx, "g")
		if err != nil || h == nil || h.OrderID != "y" {
			t.Errorf("took %+v, want the head that is free (%v)", h, err)
		}
		if h != nil {
			err = errors.Join(err, tx.Release(ctx, h))
		}
		locked, lockErr := tx.LockedElsewhere(ctx, []string{"a", "b", "c", "none"})
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, setOf(locked)); diff != "" {
			t.Error(diff)
		}
		for nth, want := range []bool{true, false} { // c alone is free
			touched, touchErr := tx.TouchOther(ctx, "g", "z", nth)
			if touched != want {
				t.Errorf("order %d is touched: %v, want %v", nth, touched, want)
			}
			err = errors.Join(err, touchErr)
		}
		touched, touchErr := tx.TouchOther(ctx, "g", "c", 0)
		if touched {
			t.Error("touched an order that is locked")
		}
		return errors.Join(err, lockErr, touchErr)
	})
	inTx(func(ctx context.Context, tx projection.Tx) error { // the second of x stays behind its head, also while that is locked
		h, err := tx.TakeHeld(ctx, "g")
		if h != nil {
			t.Errorf("took %+v", h)
		}
		return err
	})
}

func setOf(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// projected makes rows of orders.
func projected(t *testing.T, store *pgstore.Store, ids ...string) {
	t.Helper()
	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: "g", Store: store, Older: noRecords{}})
	if err != nil {
		t.Fatal(err)
	}
	log := projection.TopicPartition{Topic: "orders", TopicID: projection.TopicID{1}}
	member, _, err := projector.Assign(t.Context(), projection.Assignment{Group: "g", TopicPartition: log, Committed: projection.NoOffset})
	if err != nil {
		t.Fatal(err)
	}
	var records []projection.Record
	for i, id := range ids {
		records = append(records, projection.Record{TopicPartition: log, Offset: int64(i), Key: []byte(id), Value: fmt.Appendf(nil,
			`{"event_id":"%s-1","order_id":%q,"type":"OrderCreated.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z","data":{"customer_id":"c","total":{"amount":"1.00","currency":"EUR"}}}`, id, id)})
	}
	if err := member.Handle(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}
