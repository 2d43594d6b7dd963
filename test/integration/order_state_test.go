//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// An order whose stored state no release knows gets a letter for its next
// event; the others go on, and so does it once its state makes sense (B27).
func TestAnUnknownStoredStateIsOneOrdersProblem(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.start()
	s.produce(created("o-1"), paid("o-1", 2), created("o-2"), paid("o-2", 2), created("o-3"), paid("o-3", 2))
	s.awaitDrained()
	// One by hand while the program runs and remembers the row, one while it does not.
	s.exec(`UPDATE order_rows SET state = 'archived', revision = revision + 1 WHERE order_id = 'o-1'`)
	first := []*kgo.Record{packed("o-1", 3), packed("o-2", 3)}
	s.produce(first...)
	s.awaitDrained()
	p.Stop()
	s.exec(`UPDATE order_rows SET state = 'archived' WHERE order_id = 'o-2'`)
	p = s.start()
	second := []*kgo.Record{shipped("o-2", 4), packed("o-3", 3), shipped("o-1", 4)}
	s.produce(second...)
	s.awaitDrained()

	for _, bad := range []*kgo.Record{first[0], second[0]} {
		letter := s.letterAt(0, bad.Offset)
		if letter.reason != "illegal" || !letter.blocks || !strings.Contains(letter.detail, `unknown order state "archived"`) {
			t.Errorf("the letter: %+v", letter)
		}
	}
	// The fold knows no unknown states: to it, these events are illegal for another reason.
	illegal := func(value []byte) []byte {
		return []byte(strings.NewReplacer("OrderPacked.v1", "OrderReturned.v1", "OrderShipped.v1", "OrderAmended.v1",
			`"data":{}`, `"data":{"reason":""}`, `"carrier":"DHL"`, `"total":{"amount":"1","currency":"EUR"}`).Replace(string(value)))
	}
	s.exec(`UPDATE order_rows SET state = CASE order_id WHEN 'o-1' THEN 'paid' ELSE 'packed' END WHERE state = 'archived'`)
	s.compare(s.foldChanged(illegal, first[0], second[0]))

	// Sent once more, now that the state is repaired, they apply. The row that the
	// program remembers is the repaired one, because repairs raise the revision.
	s.exec(`UPDATE order_rows SET revision = revision + 1 WHERE order_id IN ('o-1', 'o-2')`)
	s.produce(packed("o-1", 3), shipped("o-2", 4))
	s.awaitDrained()
	s.compare(s.foldChanged(illegal, first[0], second[0]))
	if got := ask[string](s, `SELECT string_agg(format('%s %s', version, state), ', ' ORDER BY order_id) FROM orders`); got != "4 shipped, 4 shipped, 3 packed" {
		t.Errorf("the orders are %s", got)
	}
	p.Stop()
}

// An event that is only amended in place leaves the state as it is and applies
// all the same: the state machine's library calls that an error (B27).
func TestAnEventThatKeepsTheStateApplies(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	refund := func(version int64, amount string) *kgo.Record {
		return record("o-1", event("o-1", version, "OrderRefunded.v1",
			fmt.Sprintf(`{"refund_id":"r-%d","amount":{"amount":%q,"currency":"EUR"}}`, version, amount)))
	}
	s.produce(created("o-1"), amended("o-1", 2, "19.99"), amended("o-1", 3, "19.99"), paid("o-1", 4), refund(5, "1.00"), refund(6, "1.00"))
	s.awaitDrained()
	s.judge()
	if got := ask[string](s, `SELECT format('%s %s %s', version, state, refunded_minor) FROM orders`); got != "6 paid 200" {
		t.Errorf("the order is %s", got)
	}
}
