//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The first events of thousands of orders never come, because the log was
// trimmed. They wait without end, over restarts, in bounded memory and in plain
// sight; what gets its missing event goes on (B10).
func TestOrdersWithoutTheirFirstEvents(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	const orders = 5000
	var records []*kgo.Record
	for i := range orders {
		id, partition := fmt.Sprintf("o-%04d", i), int32(i%2)
		for version := int64(4); version < 7; version++ {
			records = append(records, on(partition, amended(id, version, fmt.Sprintf("%d.00", version))))
		}
	}
	records = append(records, created("gap"), amended("gap", 2, "2.00"), amended("gap", 4, "4.00"), created("fine"))
	s.produce(records...)

	peaks := make([]int64, 3)
	for run := range peaks {
		p := s.spawn()
		if run > 0 { // the numbers of the database are there from the start
			awaitMetric(t, p, func(n float64) bool { return n == 3*orders+1 }, "orderprojector_parked_events")
			awaitMetric(t, p, func(seconds float64) bool { return seconds > 0 }, "orderprojector_parked_oldest_seconds")
			s.produce(created(fmt.Sprint("late-", run)))
		}
		s.awaitDrained()
		s.judge()
		peaks[run] = p.PeakMemory()
		if code := p.Stop(patience); code != 0 {
			t.Errorf("run %d ended with exit code %d", run, code)
		}
	}
	t.Logf("peak memory %d, %d, %d MiB", peaks[0]>>20, peaks[1]>>20, peaks[2]>>20)
	if peaks[0] > 200<<20 || peaks[2] > peaks[0]+16<<20 {
		t.Error("memory grows with what waits")
	}

	s.showsWaiting(orders)

	s.startProcess()
	s.produce(amended("gap", 3, "3.00"))
	s.awaitDrained()
	result := s.judge()
	if gap := result.Order("gap"); gap == nil || gap.Version != 4 || gap.Status != "ok" {
		t.Errorf("the order with a gap is %+v", gap)
	}
	// An order that is in the log from version 4 on gets the rest after all.
	s.produce(created("o-0000"), amended("o-0000", 2, "2.00"), amended("o-0000", 3, "3.00"))
	s.awaitDrained()
	if o := s.judge().Order("o-0000"); o == nil || o.Version != 6 || o.Status != "ok" {
		t.Errorf("the order that got its first events is %+v", o)
	}
}

// showsWaiting checks what operators see of orders that wait.
func (s *stage) showsWaiting(orders int) {
	s.t.Helper()
	if n := ask[int](s, `SELECT count(*) FROM waiting_orders WHERE projection_status = 'waiting' AND waiting_for_version = 1`); n != orders {
		s.t.Errorf("%d orders in waiting_orders, wanted %d", n, orders)
	}
	type obstacle struct {
		ParkedEvents int    `json:"parked_events"`
		ParkedFrom   int64  `json:"parked_from_version"`
		WaitingSince string `json:"waiting_since"`
	}
	var view struct {
		Version           int64    `json:"version"`
		ProjectionStatus  string   `json:"projection_status"`
		WaitingForVersion int64    `json:"waiting_for_version"`
		HeldBackBy        obstacle `json:"held_back_by"`
	}
	s.commandJSON(&view, "orders", "get", "o-0007")
	if view.Version != 0 || view.ProjectionStatus != "waiting" || view.WaitingForVersion != 1 || view.HeldBackBy.ParkedEvents != 3 || view.HeldBackBy.ParkedFrom != 4 || view.HeldBackBy.WaitingSince == "" {
		s.t.Errorf("orders get o-0007: %+v", view)
	}
	s.commandJSON(&view, "orders", "get", "gap")
	if view.Version != 2 || view.ProjectionStatus != "waiting" || view.WaitingForVersion != 3 || view.HeldBackBy.ParkedEvents != 1 || view.HeldBackBy.ParkedFrom != 4 {
		s.t.Errorf("orders get gap: %+v", view)
	}
	var list []struct {
		OrderID string `json:"order_id"`
	}
	s.commandJSON(&list, "orders", "list")
	var ids []string
	for _, o := range list {
		ids = append(ids, o.OrderID)
	}
	if got := strings.Join(ids, " "); got != "fine gap late-1 late-2" {
		s.t.Errorf("orders list shows %s", got)
	}
	s.commandJSON(&list, "orders", "list", "--unapplied", "--limit", "10000")
	if len(list) != orders {
		s.t.Errorf("orders list --unapplied shows %d orders, wanted %d", len(list), orders)
	}
}
