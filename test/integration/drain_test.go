//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// One order has 60,000 parked events when its first version comes. The order is drained in bounded steps, and other orders of
// the partition flow all the while.
func TestManyParkedEventsDelayNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	const events = 60_000
	parked := make([]*kgo.Record, 0, events)
	for version := int64(2); version <= events+1; version++ {
		parked = append(parked, amended("hot", version, fmt.Sprintf("%d.00", 1+version%50)))
	}
	s.produce(parked...)
	s.awaitDrained()
	if n := ask[int](s, `SELECT count(*) FROM parked_events`); n != events {
		t.Fatalf("%d events are parked", n)
	}

	began := time.Now()
	s.produce(created("hot"), created("other"))
	s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = 'other')`)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("another order was applied after %s", took)
	}
	// The order goes on while it is drained. It has no gap: no version is missing.
	s.produce(amended("hot", events+2, "7.00"), created("third"))
	s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = 'third')`)
	if n := ask[int](s, `SELECT count(*) FROM gaps`); n != 0 {
		t.Errorf("%d gaps", n)
	}
	s.awaitSQL(`SELECT version = 60002 AND projection_status = 'ok' FROM orders WHERE order_id = 'hot'`)
	if n := ask[int](s, `SELECT count(*) FROM parked_events`); n != 0 {
		t.Errorf("%d events are still parked", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM order_events WHERE order_id = 'hot'`); n != events+2 {
		t.Errorf("the ledger has %d entries", n)
	}
	s.awaitDrained()
	if code, stdout, stderr := s.command("verify"); code != 0 {
		t.Errorf("verify: exit %d\n%s%s", code, stdout, stderr)
	}
}

// What a drain holds in memory is bounded by bytes, not by the number of parked events.
func TestLargeParkedEventsStayWithinMemory(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	padding := strings.Repeat("x", 900_000)
	large := func(version int64) *kgo.Record {
		return record("large", event("large", version, "OrderAmended.v1", fmt.Sprintf(`{"total":{"amount":"%d.00","currency":"EUR"},"note":%q}`, version, padding)))
	}
	const events = 150
	for version := int64(2); version <= events+1; version++ {
		s.produce(large(version))
	}
	p := s.startProcess("--memory-limit=160MiB", "--batch-max-bytes=4MiB")
	s.awaitDrained()
	s.produce(created("large"), created("other"))
	s.awaitSQL(`SELECT count(*) = 2 FROM orders WHERE (order_id, version) IN (('large', 151), ('other', 1))`)
	if rss := p.PeakMemory(); rss > 300<<20 {
		t.Errorf("the program took %d MiB", rss>>20)
	}
	if code, stdout, stderr := s.command("verify"); code != 0 {
		t.Errorf("verify: exit %d\n%s%s", code, stdout, stderr)
	}
}

// An operator's gap that releases thousands of events is one command, and is drained in bounded steps as well.
func TestAcceptedGapReleasesThousands(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	program := s.start()
	records := []*kgo.Record{created("o")}
	const last = 5000
	for version := int64(3); version <= last; version++ {
		records = append(records, amended("o", version, "3.00"))
	}
	s.produce(records...)
	s.awaitDrained()
	program.Stop()
	code, stdout, stderr := s.command("gaps", "accept", "o", "--versions", "2", "--execute", "--comment", "lost")
	if code != 0 {
		t.Fatalf("gaps accept: exit %d\n%s%s", code, stdout, stderr)
	}
	if version := ask[int64](s, `SELECT version FROM orders WHERE order_id = 'o'`); version != last {
		t.Errorf("the order is at version %d", version)
	}
}
