//go:build unix

package integration_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
	"github.com/orderprojector/orderprojector/outbox"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// The whole chain: commands, outbox, relay, topic, projection. What the projector made of it is what the
// order service has.
func TestRelayFeedsTheProjection(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 3}).newShop()
	s.start()
	p := s.startRelay()
	stop := s.trade(seed, 4)
	testenv.Await(t, patience, func() (bool, string) { n := s.events(); return n > 400, fmt.Sprint(n, " events") })
	stop()
	s.awaitPublished()
	s.awaitDrained()
	s.judge()
	s.judgeOnce(p)
	if differing := ask[int64](s.stage, `SELECT count(*) FROM orderservice.orders a FULL JOIN orders b USING (order_id)
		WHERE (a.version, a.state, a.customer_id, a.currency, a.total_minor, a.paid_minor, a.refunded_minor)
		IS DISTINCT FROM (b.version, b.state, b.customer_id, b.currency, b.total_minor, b.paid_minor, b.refunded_minor)`); differing != 0 {
		t.Errorf("%d orders differ between the service and the projection", differing)
	}
	if published := metric(t, p.Registry(), "orderprojector_outbox_published_total"); int(published) < s.events() {
		t.Errorf("%v messages were published by the metric, %d are", published, s.events())
	}
	if status, body := get(p.HTTPAddr(), "/healthz/consumption"); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
}

// What is rolled back is never published; what is beside it is.
func TestRelayPublishesNothingOfARollback(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.startRelay()
	errNo := errors.New("no")
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		m, err := outbox.NewMessage("o-no", 1, time.Now(), order.Created{CustomerID: "c", Total: *euros(1)})
		must(t, err)
		must(t, outbox.Append(t.Context(), tx, m))
		return errNo
	})
	if !errors.Is(err, errNo) {
		t.Fatal(err)
	}
	s.append("o-yes", 1, order.Created{CustomerID: "c", Total: *euros(1)})
	s.awaitPublished()
	s.judgeTopic()
	if n := len(s.read()); n != 1 {
		t.Errorf("%d records", n)
	}
}

// CloudEvents in binary mode: the attributes are headers, and the data is the value.
func TestRelayWritesCloudEvents(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.startRelay(func(c *config.Config) {
		c.Outbox.Format, c.Outbox.Source = "cloudevents", "https://shop.example/orders"
	})
	m := outbox.Message{
		EventID: "e-1", OrderID: "o-1", Type: "OrderCreated.v1", Version: 1, OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 678912345, time.FixedZone("", 3600)),
		Data: []byte(`{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"},"note":"ü"}`), TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState: "a=b",
	}
	must(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, m) }))
	s.awaitPublished()
	records := s.read()
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	want := projection.Record{Key: []byte("o-1"), Value: m.Data}
	for _, h := range [][2]string{
		{"ce_specversion", "1.0"}, {"ce_id", "e-1"}, {"ce_type", "OrderCreated.v1"}, {"ce_source", "https://shop.example/orders"},
		{"ce_subject", "o-1"}, {"ce_time", "2026-01-02T02:04:05.678912Z"}, {"ce_orderversion", "1"}, {"content-type", "application/json"},
		{"traceparent", m.TraceParent}, {"tracestate", "a=b"},
	} {
		want.Headers = append(want.Headers, projection.Header{Key: h[0], Value: []byte(h[1])})
	}
	if diff := cmp.Diff(want, projection.Record{Key: records[0].Key, Value: records[0].Value, Headers: records[0].Headers}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.start() // which reads it
	s.awaitDrained()
	s.judge()
	if total := ask[int64](s.stage, `SELECT total_minor FROM orders WHERE order_id = 'o-1' AND version = 1`); total != 1999 {
		t.Errorf("the projection has a total of %d", total)
	}
}

// Two relays, of which the one that publishes dies (SIGKILL) again and again, at random moments, under load: nothing is
// missing, each order's events are in order, and what came twice is the same.
func TestRelayCrashesAtRandomMoments(t *testing.T) {
	t.Parallel()
	const kills = 20
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	s := newStage(t, stageConfig{Partitions: 4}).newShop()
	stop := s.trade(seed, 3)
	relays := []*process{s.spawnRelay(), s.spawnRelay()}
	before := int32(0)
	moved := 0
	for range kills {
		published := s.published()
		pid := s.relayPID(before)
		if rng.IntN(2) == 0 { // half of the crashes come while it works, the others at any moment
			testenv.Await(t, patience, func() (bool, string) { n := s.published(); return n > published, fmt.Sprint(n, " published") })
		}
		awaitTime(time.Duration(rng.IntN(150)) * time.Millisecond)
		active := awaitActive(t, relays...)
		relays[active].Kill()
		relays[active] = s.spawnRelay()
		if s.published() > published {
			moved++
		}
		before = pid
	}
	testenv.Await(t, patience, func() (bool, string) { n := s.events(); return n >= 2000, fmt.Sprint(n, " events") })
	if moved < kills/2 {
		t.Errorf("records were published between %d of %d crashes only", moved, kills)
	}
	stop()
	s.awaitPublished()
	t.Logf("%d events, %d repeats, %d crashes", s.events(), s.judgeTopic(), kills)
	s.start() // repeats do no harm
	s.awaitDrained()
	s.judge()
}

// published is how many records the topic has.
func (s *shop) published() (n int64) {
	for _, end := range s.ends() {
		n += end
	}
	return n
}

// Commands that were repeated, refused and raced for are published as what they came to.
func TestRelayPublishesOneEventPerCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{}).newShop()
	s.startRelay()
	create := orders.Command{Name: orders.Create, OrderID: "o-1", CustomerID: "c-1", Amount: euros(500), IdempotencyKey: "k-1"}
	must(t, s.do(t.Context(), create))
	must(t, s.do(t.Context(), create))
	if err := s.do(t.Context(), orders.Command{Name: orders.Ship, OrderID: "o-1", Carrier: "x", Tracking: "y"}); err == nil {
		t.Error("an unpaid order was shipped")
	}
	must(t, s.do(t.Context(), orders.Command{Name: orders.Pay, OrderID: "o-1", PaymentID: "p-1"}))
	s.awaitPublished()
	s.judgeTopic()
	if n := len(s.read()); n != 2 {
		t.Errorf("%d records", n)
	}
}
