//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// unreadable and others are n records, each of an order of its own, spread over partitions.

func unreadable(n int, partition int32) (records []*kgo.Record) {
	for i := range n {
		records = append(records, on(partition, record(fmt.Sprintf("bad-%d-%d", partition, i), "nonsense")))
	}
	return records
}

func createdOrders(name string, n int, partitions int32) (records []*kgo.Record) {
	for i := range n {
		records = append(records, on(int32(i)%partitions, created(fmt.Sprintf("%s-%d", name, i))))
	}
	return records
}

func isZero(v float64) bool { return v == 0 }
func isOne(v float64) bool  { return v == 1 }

// holds waits until programs together have what is in the topic in front of them, and
// checks that they apply nothing of it.
func (s *stage) holds(waiting float64, orders int64, programs ...instance) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		sum := 0.0
		for _, p := range programs {
			lag, _ := metricOf(p, "orderprojector_consumer_lag_records")
			sum += lag
		}
		return sum == waiting, fmt.Sprintf("%v records wait, want %v", sum, waiting)
	})
	if n := ask[int64](s, `SELECT count(*) FROM orders`); n != orders {
		s.t.Errorf("%d orders, although consumption is paused at %d", n, orders)
	}
	for _, p := range programs {
		if status, body := get(p.HTTPAddr(), "/livez"); status != 200 {
			s.t.Errorf("livez: %d %s", status, body)
		}
	}
}

// members counts the members that the group has.
func (s *stage) members() int {
	s.t.Helper()
	groups, err := s.admin.DescribeGroups(s.t.Context(), s.group)
	must(s.t, err)
	return len(groups[s.group].Members)
}

// resume runs the command.
func (s *stage) resume() {
	s.t.Helper()
	if code, stdout, stderr := s.command("resume", "--comment", "the producer is fixed", "--actor", "ann"); code != 0 || stdout == "" {
		s.t.Fatalf("resume: exit %d, %s%s", code, stdout, stderr)
	}
}

// A bad deployment makes most events unreadable: all members stop, also across a
// restart, and go on where they were when an operator says so.
func TestABurstOfBadEventsOpensTheBreaker(t *testing.T) {
	s := newStage(t, stageConfig{Partitions: 2})
	first := s.start()
	s.produce(createdOrders("before", 200, 2)...)
	s.awaitDrained()
	awaitMetric(t, first, isZero, "orderprojector_breaker_open")
	first.Stop()
	s.awaitNoMembers()

	// The burst is there when the members start, so that one batch takes all of it.
	s.produce(unreadable(1000, 0)...)
	first = s.start()
	second := s.start()
	for _, p := range []*program{first, second} {
		awaitMetric(t, p, isOne, "orderprojector_breaker_open")
		p.awaitHTTP("/healthz/consumption", 503, "paused by the breaker")
	}
	s.awaitDrained()
	awaitOwned(t, first, 1)
	awaitOwned(t, second, 1)
	s.produce(createdOrders("after", 50, 2)...)
	s.holds(50, 200, first, second)
	if n := s.members(); n != 2 {
		t.Errorf("%d members", n)
	}
	if code, stdout, stderr := s.command("status"); code != 0 || !strings.Contains(stdout, "dead letters of one reason (invalid)") {
		t.Errorf("status: exit %d\n%s%s", code, stdout, stderr)
	}

	first.Stop()
	second.Stop()
	again := s.start()
	again.awaitHTTP("/healthz/consumption", 503, "paused by the breaker")
	awaitMetric(t, again, isOne, "orderprojector_breaker_open")
	s.holds(50, 200, again)

	s.resume()
	s.awaitDrained()
	awaitMetric(t, again, isZero, "orderprojector_breaker_open")
	again.awaitHTTP("/healthz/consumption", 200, "ok")
	if n := ask[int64](s, `SELECT count(*) FROM orders`); n != 250 {
		t.Errorf("%d orders", n)
	}
	if row := ask[string](s, `SELECT concat_ws(' ', actor, action, before->>'state', after->>'state') FROM audit_log`); row != "ann resume breaker_open running" {
		t.Errorf("audit: %s", row)
	}
	s.judge()

	// The window begins anew: some more bad ones are just bad ones.
	s.produce(unreadable(99, 1)...)
	s.produce(createdOrders("later", 10, 2)...)
	s.awaitDrained()
	awaitMetric(t, again, isZero, "orderprojector_breaker_open")
}

// Events of a type from the future block their orders, which wait safely for an
// upgrade; the others flow.
func TestABurstOfUnsupportedEventsDoesNotOpenTheBreaker(t *testing.T) {
	s := newStage(t, stageConfig{})
	p := s.start()
	var records []*kgo.Record
	for i := range 1000 {
		id := fmt.Sprintf("future-%d", i)
		records = append(records, record(id, event(id, 1, "OrderCreated.v9", `{}`)))
	}
	s.produce(records...)
	s.produce(createdOrders("good", 50, 1)...)
	s.awaitDrained()
	if v, _ := metricOf(p, "orderprojector_breaker_open"); v != 0 {
		t.Error("the breaker is open")
	}
	if n := ask[int64](s, `SELECT count(*) FROM orders`); n != 50 {
		t.Errorf("%d orders", n)
	}
	s.judge()
}

// A pause is stored: it is followed without a restart and outlives one, by kill -9 too.
func TestPauseOutlivesTheProgram(t *testing.T) {
	s := newStage(t, stageConfig{})
	p := s.spawn()
	s.produce(createdOrders("before", 20, 1)...)
	s.awaitDrained()
	if code, _, stderr := s.command("pause", "--comment", "maintenance", "--actor", "bob"); code != 0 {
		t.Fatalf("pause: exit %d %s", code, stderr)
	}
	awaitMetric(t, p, isOne, "orderprojector_consumption_paused")
	s.produce(createdOrders("after", 30, 1)...)
	s.holds(30, 20, p)
	if status, body := get(p.HTTPAddr(), "/healthz/consumption"); status != 503 || !strings.Contains(body, "paused by bob") {
		t.Errorf("consumption: %d %s", status, body)
	}
	if status, body := get(p.HTTPAddr(), "/readyz"); status != 200 {
		t.Errorf("readyz: %d %s", status, body)
	}
	p.Kill()
	p.Wait(patience)

	p = s.spawn()
	awaitMetric(t, p, isOne, "orderprojector_consumption_paused")
	s.holds(30, 20, p)
	if code, stdout, stderr := s.command("status"); code != 0 || !strings.Contains(stdout, "paused by bob") || !strings.Contains(stdout, "maintenance") {
		t.Errorf("status: exit %d\n%s%s", code, stdout, stderr)
	}
	s.resume()
	s.awaitDrained()
	awaitMetric(t, p, isZero, "orderprojector_consumption_paused")
	testenv.Await(t, patience, func() (bool, string) {
		status, body := get(p.HTTPAddr(), "/healthz/consumption")
		return status == 200, body
	})
	s.judge()
}
