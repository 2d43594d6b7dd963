//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
)

// What an order service may publish, and in which order it may come.
func TestLoyaltyPoints(t *testing.T) {
	t.Parallel()
	s := newLoyaltyStage(t, stageConfig{Partitions: 2})
	p := s.start(func(c *config.Config) { c.Projection.BatchMaxRecords = 3 })
	var records []*kgo.Record
	add := func(r ...*kgo.Record) { records = append(records, r...) }
	add(createdBy("plain", "c-1"), paidWith("plain", 2, "p-1", "19.99", "EUR", "c-1"), refundedWith("plain", 3, "r-1", "0.50", "EUR", ""))
	add(refundedWith("early", 3, "r-2", "5.00", "EUR", ""), paidWith("early", 2, "p-2", "19.99", "EUR", ""), createdBy("early", "c-1"))
	// The same payment under two event IDs, and the same event twice, once written in another way.
	twice := paidWith("twice", 2, "p-3", "7.00", "EUR", "c-2")
	again := record("twice", eventWithID("twice-other", "twice", 3, "OrderPaid.v1", paying("p-3", "7.00", "EUR", "c-2")))
	rewritten := record("twice", strings.ReplaceAll(string(twice.Value), `":`, `" : `))
	add(twice, again, record("twice", string(twice.Value)), rewritten)
	// Event IDs of another order, and of another content; a payment of another order, and of another amount.
	stolen := record("thief", eventWithID("plain-e2", "thief", 2, "OrderPaid.v1", paying("p-4", "100.00", "EUR", "c-9")))
	changed := record("twice", eventWithID("twice-e2", "twice", 2, "OrderPaid.v1", paying("p-5", "70.00", "EUR", "c-2")))
	add(stolen, changed, paidWith("thief", 3, "p-1", "19.99", "EUR", "c-9"), paidWith("plain", 4, "p-1", "20.00", "EUR", "c-1"))
	// Other currencies.
	add(paidWith("yen", 2, "p-6", "1999", "JPY", "c-3"), paidWith("dinar", 2, "p-7", "1.999", "KWD", "c-3"))
	// Nobody says who the customer is; and somebody does so later, or says another one.
	add(paidWith("nobody", 2, "p-8", "3.00", "EUR", ""), refundedWith("late", 3, "r-9", "1.00", "EUR", ""), paidWith("late", 2, "p-9", "3.00", "EUR", "c-4"),
		createdBy("gift", "c-5"), paidWith("gift", 2, "p-10", "8.00", "EUR", ""), paidWith("gift", 3, "p-11", "9.00", "EUR", "c-6"))
	// What no consumer can read, what this release cannot, and what does not concern it.
	add(record("bad", `{"order_id":"bad"`), record("future", event("future", 2, "OrderPaid.v9", `{}`)), record("plain", event("plain", 5, "OrderGiftWrapped.v1", `{}`)),
		packed("plain", 3), &kgo.Record{Key: []byte("plain")})
	s.produce(records...)
	s.awaitDrained()
	s.judgePoints()
	for customer, points := range map[string]int64{"c-1": 19 + 14, "c-2": 7, "c-3": 1999 + 1, "c-4": 2, "c-5": 0, "c-6": 17, "c-9": 0} {
		if got := ask[int64](s.stage, `SELECT coalesce(sum(delta), 0)::bigint FROM points_ledger WHERE customer_id = $1`, customer); got != points {
			t.Errorf("%s has %d points, want %d", customer, got, points)
		}
	}
	if n := ask[int64](s.stage, `SELECT count(*) FROM dead_letters WHERE blocks`); n != 0 {
		t.Errorf("%d letters of a consumer beside the projector block orders", n)
	}
	p.Stop()

	// The projector has another opinion of what is illegal, and the check lists it.
	code, _, stderr := s.command("points", "check")
	if code != 3 || !strings.Contains(stderr, "orders differ") {
		t.Errorf("check before anything is projected: exit code %d, %s", code, stderr)
	}
	code, stdout, stderr := s.command("points", "balance", "c-1")
	if code != 0 || !strings.Contains(stdout, "33") {
		t.Errorf("balance: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, _ := s.command("points", "balance", "c-77"); code != 4 {
		t.Errorf("balance of nobody: exit code %d", code)
	}
	code, stdout, stderr = s.command("points", "ledger", "--order", "early", "-o", "json")
	if code != 0 || strings.Count(stdout, `"delta"`) != 2 || !strings.Contains(stdout, `"delta": 14`) {
		t.Errorf("ledger: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := s.command("run", "loyalty", "--loyalty-group="+s.group+"-projector"); code != 2 || !strings.Contains(stderr, "group of its own") {
		t.Errorf("the projector's group: exit code %d, %s", code, stderr)
	}
}

// Clean traffic: the ledger and the projection agree, and points check says so.
func TestLoyaltyAgreesWithTheProjection(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newLoyaltyStage(t, stageConfig{Partitions: 3})
	s.generate(generate.Config{Seed: seed, Orders: 800, InFlight: 50, Rates: generate.Rates{Duplicate: 0.05, LateRepeat: 0.05, Reencoded: 0.02}, Delay: 50})
	s.start()
	s.stage.start(func(c *config.Config) { c.Kafka.Group, c.Kafka.DeadLetterTopic = s.group+"-projector", "none" })
	s.awaitDrained()
	s.judgePoints()
	s.awaitSQL(`SELECT sum(next_offset) FILTER (WHERE consumer_group = $1) = sum(next_offset) FILTER (WHERE consumer_group <> $1) FROM projection_watermarks`, s.group)
	if code, stdout, stderr := s.command("points", "check"); code != 0 || !strings.Contains(stdout, "differ:") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	s.exec(`UPDATE points_ledger SET delta = delta + 1 WHERE source = (SELECT min(source) FROM points_ledger)`)
	s.exec(`DELETE FROM points_ledger WHERE order_id = (SELECT max(order_id) FROM points_ledger)`)
	code, stdout, stderr := s.command("points", "check", "-o", "json")
	if code != 3 || strings.Count(stdout, `"problems"`) != 2 || !strings.Contains(stderr, "2 of ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Faulty traffic in large and in small batches, with many events of single orders and customers at the same time in two members.
func TestLoyaltyBatches(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newLoyaltyStage(t, stageConfig{Partitions: 2})
	var records []*kgo.Record
	for i := range 200 { // both members touch the same customers, in opposite order
		for partition := range int32(2) {
			for j := range 2 {
				customer := (int(partition) + j) % 2
				orderID := fmt.Sprintf("o-%d-%d-%d", i, partition, customer)
				records = append(records, on(partition, paidWith(orderID, 2, "p-"+orderID, "5.00", "EUR", fmt.Sprintf("c-%d", customer))))
			}
		}
	}
	for i := range 70 { // one order with many refunds, and repeats among them
		records = append(records, refundedWith("hot", int64(i/2+3), fmt.Sprintf("r-%d", i/2), "0.10", "EUR", "c-hot"))
	}
	records = append(records, paidWith("hot", 2, "p-hot", "19.99", "EUR", "c-hot"))
	s.produce(append(records, s.generated(generate.Config{Seed: seed, Orders: 3500, Rates: generate.Faulty(), Delay: 200}, 2)...)...)
	for range 2 {
		s.start(func(c *config.Config) { c.Projection.BatchMaxRecords = 20_000 })
	}
	s.awaitDrained()
	s.judgePoints()
}
