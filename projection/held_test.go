package projection_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// heldStage is a projector under control, whose store refuses the rows of some orders. It plays in a bubble of synctest.
type heldStage struct {
	*controlled
	refused map[string]error // by order; "*" is every order
}

func newHeldStage(t *testing.T, breaker projection.BreakerPolicy, held projection.HeldPolicy) *heldStage {
	s := &heldStage{controlWith(t, breaker, held), map[string]error{}}
	s.store.Timed = true
	s.store.Refuse = func(r *projection.Row) error {
		if err := s.refused["*"]; err != nil {
			return err
		}
		return s.refused[r.OrderID]
	}
	return s
}

// refuse changes what the store refuses, while no transaction is open.
func (s *heldStage) refuse(orderID string, err error) {
	must(s.t, s.store.InTx(s.t.Context(), func(context.Context, projection.Tx) error {
		s.refused[orderID] = err
		return nil
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// records are versions of orders, each given as "order version".
func (s *heldStage) records(events ...string) (records []projection.Record) {
	for _, e := range events {
		id, version, _ := strings.Cut(e, " ")
		typ, data := "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"1.00","currency":"EUR"}}`
		if version != "1" {
			typ, data = "OrderAmended.v1", `{"total":{"amount":"1.00","currency":"EUR"}}`
		}
		records = append(records, projection.Record{
			TopicPartition: projection.TopicPartition{Topic: "orders"}, Offset: s.next, Key: []byte(id),
			Value: fmt.Appendf(nil, `{"event_id":"%[1]s-%[2]s","order_id":%[1]q,"type":%[3]q,"version":%[2]s,"occurred_at":"2026-01-01T10:00:00Z","data":%[4]s}`, id, version, typ, data),
		})
		s.next++
	}
	return records
}

func (s *heldStage) play(events ...string) {
	s.t.Helper()
	must(s.t, s.handler.Handle(s.t.Context(), s.records(events...)))
}

// counts checks the outcomes of the partition: applied, parked, invalid and held.
func (s *heldStage) counts(applied, parked, invalid, held int64) {
	s.t.Helper()
	w := s.store.Watermark(projection.WatermarkKey{Group: "g", TopicPartition: projection.TopicPartition{Topic: "orders"}})
	want := projection.Counts{projection.Applied: applied, projection.Parked: parked, projection.Invalid: invalid, projection.Held: held}
	if w.Counts != want {
		s.t.Errorf("counts %v, want %v", w.Counts, want)
	}
	if n := int64(len(s.store.HeldRecords())); n != held {
		s.t.Errorf("%d held records, want %d", n, held)
	}
	if w.NextOffset != s.next || w.Counts.Total() != s.next {
		s.t.Errorf("watermark %d and %d records counted, want %d", w.NextOffset, w.Counts.Total(), s.next)
	}
}

// until tries held records once a second, until done or a time is over, and returns for how long.
func (s *heldStage) until(most time.Duration, done func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !done() && time.Since(began) < most {
		time.Sleep(time.Second)
		_, _ = s.projector.RetryHeldOnce(s.t.Context())
	}
	return time.Since(began)
}

func (s *heldStage) none() bool { return len(s.store.HeldRecords()) == 0 }

// A record that fails alone is held. The others are applied, and its order's later records wait behind it.
func TestARecordThatFailsAloneIsHeldUntilItsCauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{})
		s.refuse("a", projectiontest.ErrRaised)
		s.play("b 1", "a 1", "b 2", "a 2", "c 1")
		s.counts(3, 0, 0, 2)
		for _, h := range s.store.HeldRecords() {
			want := projection.HeldRecord{Class: "infrastructure", Failures: 1, Counted: 1, Cause: projectiontest.ErrRaised.Error()}
			if h.Version == 2 {
				want = projection.HeldRecord{Class: projection.HeldQueued, Cause: "it waits behind an earlier held record of its order"}
			}
			if h.OrderID != "a" || h.Class != want.Class || h.Failures != want.Failures || h.Counted != want.Counted || !strings.Contains(h.Cause, want.Cause) {
				t.Errorf("held: %+v", h)
			}
		}
		s.until(time.Minute, s.none)
		s.play("a 3", "c 2")
		s.counts(4, 0, 0, 3)
		s.refuse("a", nil)
		if took := s.until(time.Minute, s.none); took > 40*time.Second {
			t.Errorf("healed after %v", took)
		}
		s.counts(7, 0, 0, 0)
		if row := s.store.Rows()["a"]; row == nil || row.Version != 3 || row.Status != projection.StatusOK {
			t.Errorf("the order: %+v", row)
		}
		s.play("a 4") // the queue is gone
		s.counts(8, 0, 0, 0)
	})
}

// A held record becomes a dead letter after 16 failures that count, and not before its minimum age.
func TestAHeldRecordBecomesALetter(t *testing.T) {
	for name, minAge := range map[string]time.Duration{"by failures": time.Second, "by age": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{MinAge: minAge})
				s.play("b 1", "a 1")
				s.refuse("a", projectiontest.ErrRaised)
				s.play("a 2", "a 3")
				var before projection.HeldRecord
				took := s.until(2*time.Hour, func() bool {
					if len(s.store.Letters()) > 0 {
						return true
					}
					before = s.store.HeldRecords()[0]
					if before.Version != 2 {
						before = s.store.HeldRecords()[1]
					}
					return false
				})
				letters := s.store.Letters()
				if len(letters) != 1 {
					t.Fatalf("%d letters after %v", len(letters), took)
				}
				if l := letters[0]; l.OrderID != "a" || l.Version != 2 || !l.Blocks || !l.WasHeld || l.Reason != projection.Invalid {
					t.Errorf("letter %+v", l)
				}
				if before.Counted < projection.MaxHeldFailures-1 || minAge == time.Second && before.Counted != projection.MaxHeldFailures-1 || took < minAge {
					t.Errorf("a letter after %v and %d failures before the last one", took, before.Counted)
				}
				s.refuse("a", nil)
				s.until(time.Minute, s.none)
				s.counts(2, 1, 1, 0) // version 3 waits behind the letter
			})
		})
	}
}

// Locks and deadlines say nothing of the record: it is never made a letter because of them.
func TestFailuresThatDoNotCountMakeNoLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{MinAge: time.Millisecond})
		s.play("b 1", "a 1")
		s.refuse("a", projectiontest.ErrLocked)
		s.play("a 2")
		s.counts(2, 0, 0, 1)
		s.until(3*time.Hour, func() bool { return false })
		held := s.store.HeldRecords()
		if len(held) != 1 || held[0].Failures < 100 || held[0].Counted != 0 || len(s.store.Letters()) != 0 {
			t.Errorf("held %+v, letters %+v", held, s.store.Letters())
		}
		s.refuse("a", nil)
		s.until(time.Minute, s.none)
		s.counts(3, 0, 0, 0)
	})
}

// When nothing can be written, nothing is held, and what is held counts no failure.
func TestAnOutageHoldsAndCountsNothing(t *testing.T) {
	for _, cause := range []error{projectiontest.ErrConnection, projectiontest.ErrRaised, projectiontest.ErrLocked, projectiontest.ErrData} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{MinAge: time.Millisecond})
				s.play("b 1", "a 1", "c 1")
				s.refuse("a", projectiontest.ErrRaised)
				s.play("a 2", "b 2")
				s.counts(4, 0, 0, 1)
				before := s.store.HeldRecords()[0]
				s.refuse("*", cause)
				done := make(chan error, 1)
				more := s.records("c 2", "d 1", "a 3")
				go func() { done <- s.handler.Handle(t.Context(), more) }()
				s.until(time.Hour, func() bool { return false })
				if held := s.store.HeldRecords(); len(held) != 1 || held[0].Failures != before.Failures || held[0].Counted != before.Counted {
					t.Errorf("held during the outage: %+v, before %+v", held, before)
				}
				if letters := s.store.Letters(); len(letters) > 0 {
					t.Errorf("letters %+v", letters)
				}
				s.refuse("*", nil)
				must(t, <-done)
				s.counts(6, 0, 0, 2)
				s.refuse("a", nil)
				s.until(time.Minute, s.none)
				s.counts(8, 0, 0, 0)
			})
		})
	}
}

// Without another order nothing shows that the record is the cause.
func TestNothingIsHeldWithoutAnotherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{})
		s.refuse("a", projectiontest.ErrRaised)
		done := make(chan error, 1)
		only := s.records("a 1", "a 2")
		go func() { done <- s.handler.Handle(t.Context(), only) }()
		time.Sleep(time.Hour)
		if held := s.store.HeldRecords(); len(held) > 0 {
			t.Errorf("held %+v", held)
		}
		s.refuse("a", nil)
		must(t, <-done)
		s.counts(2, 0, 0, 0)
	})
}

// Held records of many orders that are most of the window are a bad deployment.
func TestHeldRecordsOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHeldStage(t, projection.BreakerPolicy{}, projection.HeldPolicy{})
		s.play("ok 1")
		hold := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				s.refuse(fmt.Sprint("o-", i), projectiontest.ErrRaised)
				s.play(fmt.Sprintf("o-%d 1", i))
			}
		}
		hold(0, 99)
		s.play("o-1 2", "o-1 3") // of an order that is held already
		s.gate("")
		hold(99, 100)
		s.gate("100 of the last 103 events are held, of 100 orders or more")
		_, why := s.control.Closed()
		paused, ok := why.(*projection.PausedError) //nolint:errorlint // it is the gate's own
		if !ok || !strings.Contains(paused.Hint(), "held list") || strings.Contains(paused.Hint(), "dlq") {
			t.Errorf("the hint: %v", paused)
		}
		stored, _ := s.store.Consumption(t.Context(), "g")
		if b := stored.Breaker; b == nil || b.Reason != projection.Held || b.Letters != 100 || b.Events != 103 {
			t.Errorf("stored: %+v", stored.Breaker)
		}
	})
}

// More held records than the group may have open the breaker, whether they failed or joined a queue. They are tried again meanwhile.
func TestTooManyHeldRecordsPauseTheGroup(t *testing.T) {
	for name, events := range map[string][]string{"of many orders": {"a 1", "b 1", "c 1", "d 1"}, "of one order": {"a 1", "a 2", "a 3", "a 4"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHeldStage(t, projection.BreakerPolicy{MaxHeld: 3}, projection.HeldPolicy{})
				s.play("ok 1")
				for _, id := range []string{"a", "b", "c", "d"} {
					s.refuse(id, projectiontest.ErrRaised)
				}
				s.play(events[:3]...)
				s.gate("")
				s.play(events[3:]...)
				s.gate("4 records are held, more than the group may have")
				s.counts(1, 0, 0, 4)

				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); s.projector.RetryHeld(ctx) }()
				for _, id := range []string{"a", "b", "c", "d"} {
					s.refuse(id, nil)
				}
				time.Sleep(10 * time.Second)
				s.counts(5, 0, 0, 0)
				s.gate("4 records are held") // until an operator resumes

				s.refuse("e", projectiontest.ErrRaised)
				s.store.SetConsumption("g", projection.Consumption{Pause: &projection.Pause{}})
				time.Sleep(2 * time.Second)
				s.play("e 1")
				s.refuse("e", nil)
				time.Sleep(time.Minute)
				s.counts(5, 0, 0, 1) // nothing is applied while an operator has paused the group
				s.store.SetConsumption("g", projection.Consumption{})
				time.Sleep(10 * time.Second)
				s.counts(6, 0, 0, 0)
				cancel()
				<-ended
			})
		})
	}
}
