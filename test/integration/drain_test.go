//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// One order has 100,000 parked events when its first version comes. The order is drained in bounded steps, and other orders of
// the partition flow all the while.
func TestManyParkedEventsDelayNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.startProcess()
	const events = 100_000
	parked := make([]*kgo.Record, 0, events)
	for version := int64(2); version <= events+1; version++ {
		parked = append(parked, amended("hot", version, fmt.Sprintf("%d.00", 1+version%50)))
	}
	s.produce(parked...)
	s.awaitDrained()
	if n := ask[int](s, `SELECT count(*) FROM parked_events`); n != events {
		t.Fatalf("%d events are parked", n)
	}

	// Other orders come one after another while the order is drained, and one of its own records among them.
	began, longest, during := time.Now(), time.Duration(0), 0
	s.produce(created("hot"))
	for i := 0; i < 5 || !ask[bool](s, `SELECT version > 100000 FROM order_rows WHERE order_id = 'hot' UNION ALL SELECT false LIMIT 1`); i++ {
		id := fmt.Sprintf("other-%d", i)
		sent := time.Now()
		if i == 2 {
			s.produce(amended("hot", events+2, "7.00"))
		}
		s.produce(created(id))
		s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = $1)`, id)
		longest, during = max(longest, time.Since(sent)), i+1
		if n := ask[int](s, `SELECT count(*) FROM gaps`); n != 0 {
			t.Errorf("%d gaps, and no version is missing", n)
		}
	}
	s.awaitSQL(`SELECT version = 100002 AND projection_status = 'ok' FROM orders WHERE order_id = 'hot'`)
	t.Logf("drained in %s; %d other orders meanwhile, each within %s; %d MiB at most", time.Since(began), during, longest, p.PeakMemory()>>20)
	if longest > 30*time.Second {
		t.Errorf("another order was applied after %s", longest)
	}
	if rss := p.PeakMemory(); rss > 250<<20 {
		t.Errorf("the program took %d MiB", rss>>20)
	}
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

// Two orders are due for the sweep, and another session has locked the first. The second is swept all the same, and the first
// once its lock is gone.
func TestALockedOrderDoesNotStopTheSweep(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	p := s.start()
	s.produce(created("a"), created("b"), on(1, amended("a", 3, "5.00")), on(1, amended("b", 3, "5.00")))
	s.awaitDrained()
	release := s.holdOrders("a")
	// What a member that lost a race would leave behind: the missing version is applied, and the parked one still waits.
	s.exec(`UPDATE parked_events SET version = 2, value = convert_to(replace(convert_from(value, 'UTF8'), '"version":3', '"version":2'), 'UTF8')`)
	s.awaitSQL(`SELECT version = 2 FROM orders WHERE order_id = 'b'`)
	if version := ask[int](s, `SELECT version FROM orders WHERE order_id = 'a'`); version != 1 {
		t.Errorf("the locked order is at version %d", version)
	}
	release()
	s.awaitSQL(`SELECT count(*) = 2 FROM orders WHERE version = 2`)
	if status, body := p.get("/healthz/consumption"); status != 200 {
		t.Errorf("consumption: %d %s", status, body)
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
