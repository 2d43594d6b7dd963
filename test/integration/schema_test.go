//go:build unix

package integration_test

import (
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection"
)

// previousRelease decodes as a release does that knows version 1 of OrderCreated alone: the data of
// another version is not looked at.
type previousRelease struct{ projection.EventDecoder }

// Decode implements projection.Decoder.
func (d previousRelease) Decode(r *projection.Record) (projection.Envelope, error) {
	env, err := d.EventDecoder.Decode(r)
	if _, version := projection.SplitType(env.Type); err == nil && version > 1 {
		env.Event = nil
	}
	return env, err
}

// asPreviousRelease consumes with the previous release while work runs.
func (s *stage) asPreviousRelease(t *testing.T, name string, work func(*stage)) {
	t.Run(name, func(t *testing.T) {
		old := *s
		old.t = t
		old.startConsumer(previousRelease{})
		work(&old)
	})
}

// A release that does not know a schema version holds its events: nothing is dropped and nothing is half applied,
// other orders go on, and after the upgrade one redrive releases all of them. Rolled back, it reads rows
// and ledgers of the newer one, goes on with their orders, and holds what it does not know.
func TestNewSchemaVersionsAcrossReleases(t *testing.T) {
	s := newStage(t, stageConfig{})
	s.asPreviousRelease(t, "before the upgrade", func(old *stage) {
		old.produce(
			record("plain", event("plain", 1, "OrderCreated.v2", linesData)), paid("plain", 2), packed("plain", 3),
			old.binary(cloudEvent("binary", 1, "OrderCreated.v2", linesData)), old.structured(cloudEvent("binary", 2, "OrderPaid.v1", paidData)),
			old.structured(cloudEvent("structured", 1, "OrderCreated.v2", linesData)), paid("structured", 2),
			record("unknown", event("unknown", 1, "OrderCreated.v3", `{"everything":"else"}`)), paid("unknown", 2),
			created("other"), paid("other", 2),
		)
		old.awaitDrained()
		old.awaitOrder("other", 2, "ok")
		for _, id := range []string{"plain", "binary", "structured", "unknown"} {
			old.awaitOrder(id, 0, "blocked")
		}
		if unsupported, parked := old.counted("unsupported"), old.counted("parked"); unsupported != 4 || parked != 5 {
			t.Errorf("%d unsupported and %d parked, want 4 and 5", unsupported, parked)
		}
		if n := ask[int64](old, `SELECT count(*) FROM dead_letters WHERE status = 'open' AND blocks AND reason = 'unsupported' AND detail LIKE 'unknown event type or schema version "OrderCreated.v%'`); n != 4 {
			t.Errorf("%d letters, want 4", n)
		}
	})

	p := s.start()
	s.produce(shipped("plain", 4), amended("new", 2, "5.00"), record("new", event("new", 1, "OrderCreated.v2", linesData)))
	s.awaitOrder("new", 2, "ok")
	s.awaitOrder("plain", 0, "blocked") // an upgrade alone decides nothing again
	s.operate("dry run", "dlq", "redrive", "--reason", "unsupported")
	s.operate("refused again:  1", "dlq", "redrive", "--reason", "unsupported", "--execute")
	s.awaitOrder("plain", 4, "ok")
	s.awaitOrder("binary", 2, "ok")
	s.awaitOrder("structured", 2, "ok")
	s.awaitOrder("unknown", 0, "blocked")
	s.awaitDrained()
	result := s.fold()
	for _, id := range []string{"plain", "binary", "structured", "other", "new"} {
		want := result.Order(id)
		s.awaitOrder(id, want.Version, want.Status)
		if state := ask[string](s, `SELECT state FROM orders WHERE order_id = $1`, id); state != want.State {
			t.Errorf("order %s is %s, want %s", id, state, want.State)
		}
	}
	if wrong := ask[int64](s, `SELECT count(*) FROM orders WHERE total_minor <> 1999 AND order_id <> 'new' OR customer_id <> 'c-1'`); wrong != 0 {
		t.Errorf("%d orders have another total or customer", wrong)
	}
	s.operate("", "verify")
	p.Stop()

	s.asPreviousRelease(t, "after a rollback", func(old *stage) {
		duplicates := old.counted("duplicate")
		old.produce(
			record("plain", event("plain", 1, "OrderCreated.v2", linesData)),                               // the same bytes
			old.structured(cloudEvent("plain", 1, "OrderCreated.v2", linesData)),                           // another format
			record("binary", " "+event("binary", 1, "OrderCreated.v2", linesData)),                         // other bytes
			record("new", event("new", 1, "OrderCreated.v2", strings.Replace(linesData, "tea", "gin", 1))), // other content
			packed("binary", 3), old.binary(cloudEvent("structured", 3, "OrderPacked.v1", `{}`)),
			record("held", event("held", 1, "OrderCreated.v2", linesData)), paid("held", 2),
		)
		old.awaitDrained()
		old.awaitOrder("binary", 3, "ok")
		old.awaitOrder("structured", 3, "ok")
		old.awaitOrder("held", 0, "blocked")
		if got := old.counted("duplicate") - duplicates; got != 3 {
			t.Errorf("%d duplicates, want 3", got)
		}
		if n := ask[int64](old, `SELECT count(*) FROM dead_letters WHERE order_id = 'new' AND reason = 'conflict' AND detail LIKE '%another content'`); n != 1 {
			t.Error("another content under the same name is no conflict")
		}
	})
	s.start()
	s.operate("", "dlq", "redrive", "--reason", "unsupported", "--order", "held", "--execute")
	s.awaitOrder("held", 2, "ok")
	s.operate("", "verify")
}
