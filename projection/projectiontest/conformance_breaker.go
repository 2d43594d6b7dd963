package projectiontest

import (
	"context"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// breaker checks what the breaker judges by, and that its state is kept. It needs a store that
// is a projection.ControlStore, too.
func breaker(s *suite) {
	control, ok := s.store.(projection.ControlStore)
	if !ok {
		s.Fatal("the store keeps no control state")
	}
	key := projection.WatermarkKey{Group: "g", TopicPartition: projection.TopicPartition{Topic: "orders", Partition: 1}}
	other := key
	other.Partition = 2
	stranger := projection.WatermarkKey{Group: "h", TopicPartition: key.TopicPartition}
	policy := projection.BreakerPolicy{Window: time.Minute, MinLetters: 3}
	for _, k := range []projection.WatermarkKey{key, other, stranger} {
		s.tx(func(ctx context.Context, tx projection.Tx) {
			s.must(tx.InsertWatermark(ctx, k, 0))
			s.must(tx.AdvanceWatermark(ctx, k, 5, projection.Counts{projection.Applied: 5}, 0))
		})
	}
	s.must(control.NoteEvents(s.Context(), "g", time.Second, policy.Window)) // the ten before do not count

	note := func(k projection.WatermarkKey, refused ...projection.Refusals) (w projection.BreakerWindow) {
		s.tx(func(ctx context.Context, tx projection.Tx) {
			s.must(tx.AdvanceWatermark(ctx, k, 10, projection.Counts{projection.Invalid: 2, projection.Applied: 1}, 0))
			var err error
			w, err = tx.NoteRefusals(ctx, k, refused, policy)
			s.must(err)
		})
		return w
	}
	refused := func(letters int64, ids ...string) projection.Refusals {
		return projection.Refusals{Reason: projection.Invalid, Letters: letters, OrderIDs: ids}
	}
	count := func(letters, orders int64) projection.Refusals {
		return projection.Refusals{Reason: projection.Invalid, Letters: letters, Orders: orders}
	}
	s.equal("the first", projection.BreakerWindow{Events: 3, Refused: []projection.Refusals{count(2, 1)}}, note(key, refused(2, "o-1")))
	s.equal("of a stranger", []projection.Refusals{count(9, 1)}, note(stranger, refused(9, "o-9")).Refused)
	s.equal("of the same order, in another partition",
		projection.BreakerWindow{Events: 6, Refused: []projection.Refusals{count(4, 2)}}, note(other, refused(2, "o-1", "o-2\x00")))
	w := note(key, refused(7, "o-3", "o-4"), projection.Refusals{Reason: projection.Conflict, Letters: 1, OrderIDs: []string{"o-1"}})
	if len(w.Refused) != 2 || w.Events != 9 {
		s.Errorf("two reasons: %+v", w)
	}
	for _, r := range w.Refused {
		if r.Reason == projection.Invalid && (r.Letters != 11 || r.Orders < policy.MinLetters) {
			s.Errorf("enough: %+v", r)
		}
	}

	read := func(group string) projection.Consumption {
		c, err := control.Consumption(s.Context(), group)
		s.must(err)
		return c
	}
	if c := read("g"); c.Closed() != nil {
		s.Errorf("closed before anything: %v", c.Closed())
	}
	first := projection.BreakerTrip{Reason: projection.Invalid, Letters: 11, Orders: 4, Events: 20}
	s.tx(func(ctx context.Context, tx projection.Tx) { s.must(tx.TripBreaker(ctx, "g", first)) })
	s.tx(func(ctx context.Context, tx projection.Tx) {
		s.must(tx.TripBreaker(ctx, "g", projection.BreakerTrip{Reason: projection.Conflict, Letters: 1}))
	})
	got := read("g").Breaker
	if got == nil || time.Since(got.Since) > time.Hour {
		s.Fatalf("stored: %+v", got)
	}
	first.Since = got.Since
	s.equal("the first trip stays", first, *got)
	if c := read("h"); c.Closed() != nil {
		s.Errorf("another group: %v", c.Closed())
	}
}
