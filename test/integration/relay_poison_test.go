//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// smallRequests is a broker that closes the connection at a request of more than 300,000 bytes.
func smallRequests(t *testing.T) *testenv.Kafka {
	t.Helper()
	return testenv.StartKafka(t, testenv.KafkaConfig{Settings: map[string]string{"socket.request.max.bytes": "300000"}})
}

// sized stores an OrderCreated message with a note of so many bytes that do not compress.
func (s *shop) sized(orderID string, version, size int) {
	s.t.Helper()
	eventID := fmt.Sprintf("%s-e%d", orderID, version)
	s.exec(`INSERT INTO outbox (id, aggregateid, type, payload)
		VALUES ($2, $1, 'OrderAmended.v1', json_build_object('event_id', $2::text, 'order_id', $1::text, 'type', 'OrderAmended.v1', 'version', $3::int,
			'occurred_at', '2026-01-01T10:00:00Z', 'data', json_build_object('total', json_build_object('amount', '5.00', 'currency', 'EUR'), 'note', $4::text)))`,
		orderID, eventID, version, noise(size))
	s.note(orderID, int64(version), eventID)
}

// The broker closes the connection at one message. That message holds its own order back alone, with the reason; all other
// orders are published, also those that shared a batch with the message.
func TestAMessageAtWhichTheBrokerClosesTheConnection(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Brokers: smallRequests(t).Brokers(), Partitions: 2}).newShop()
	p := s.startRelay()
	s.sized("o-large", 1, 930_000)
	s.append("o-large", 2, order.Amended{Total: *euros(2)})
	for i := range 20 {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	began := time.Now()
	s.awaitSQL(`SELECT count(*) = 0 FROM outbox WHERE aggregateid <> 'o-large'`)
	t.Logf("the others were published after %v", time.Since(began))
	s.awaitSQL(`SELECT count(*) = 1 FROM outbox_failures WHERE aggregateid = 'o-large' AND status = 'blocked' AND reason = 'refused'
		AND detail LIKE '%closes the connection%' AND detail LIKE '%socket.request.max.bytes%'`)
	t.Logf("the message was blocked after %v", time.Since(began))
	awaitBody(t, p, "/healthz/consumption", 503, "hold orders back: 1", "o-large", "closes the connection")
	awaitMetric(t, p, func(n float64) bool { return n == 1 }, "orderprojector_outbox_blocked_orders")
	awaitMetric(t, p, func(n float64) bool { return n == 1 }, "orderprojector_outbox_refused_total", `reason="refused"`)
	awaitMetric(t, p, func(n float64) bool { return n == 0 }, "orderprojector_outbox_suspects")
	if n := ask[int64](s.stage, `SELECT count(*) FROM outbox`); n != 2 {
		t.Errorf("%d messages are left", n)
	}

	// Tried again, the message does not stop the others once more.
	s.endsWith(0, "outbox", "retry", "--all", "--comment", "again")
	failures, _ := metricOf(p, "orderprojector_outbox_failures_total")
	s.awaitSQL(`SELECT count(*) = 1 FROM outbox_failures WHERE status = 'blocked' AND attempts = 2`)
	for i := range 20 {
		s.append(fmt.Sprintf("o-%d", i), 2, order.Amended{Total: *euros(3)})
	}
	s.awaitSQL(`SELECT count(*) = 2 FROM outbox`)
	if after, _ := metricOf(p, "orderprojector_outbox_failures_total"); after != failures {
		t.Errorf("%v failures kept others waiting, before the second attempt %v", after, failures)
	}
	delete(s.done, "o-large")
	s.judgeTopic()
}

// Nothing else waits: the broker still answers, so the message is at fault.
func TestAMessageAtWhichTheBrokerClosesTheConnectionAndNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Brokers: smallRequests(t).Brokers()}).newShop()
	s.startRelay()
	s.sized("o-large", 1, 930_000)
	s.awaitSQL(`SELECT count(*) = 1 FROM outbox_failures WHERE aggregateid = 'o-large' AND status = 'blocked' AND reason = 'refused'`)
}

// Messages that are too many for one request of the broker, and none of them too large, are all published.
func TestMessagesThatAreTooLargeTogether(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Brokers: smallRequests(t).Brokers(), Partitions: 2}).newShop()
	for i := range 60 {
		s.sized(fmt.Sprintf("o-%d", i), 1, 50_000)
		s.sized(fmt.Sprintf("o-%d", i), 2, 50_000)
	}
	s.startRelay()
	began := time.Now()
	s.awaitPublished()
	t.Logf("published after %v", time.Since(began))
	s.judgeTopic()
	if n := ask[int64](s.stage, `SELECT count(*) FROM outbox_failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
}

// Whatever cuts connections, at large messages too, blocks no message: neither a broker that dies nor a network that closes connections at random.
func TestAnOutageBlocksNoMessage(t *testing.T) {
	t.Parallel()
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Proxied: true})
	s := newStage(t, stageConfig{Brokers: kafka.Brokers(), Partitions: 2})
	s.programBrokers = []string{kafka.Proxy().Addr()}
	shop := s.newShop()
	p := s.startRelay(func(c *config.Config) { c.StallLimit = time.Second })
	shop.append("o-0", 1, createdFor("c"))
	shop.awaitPublished()
	proxy := kafka.Proxy()
	for i := range 10 {
		shop.sized(fmt.Sprintf("l-%d", i), 1, 900_000)
		shop.append(fmt.Sprintf("s-%d", i), 1, createdFor("c"))
		for range 10 {
			proxy.Sever()
			time.Sleep(20 * time.Millisecond)
		}
	}
	kafka.Kill()
	shop.sized("l-last", 1, 900_000) // the only one, perhaps
	awaitStatus(t, p, "/healthz/consumption", 503)
	for n := range 3 { // a broker that dies again and again
		must(t, kafka.Start(context.WithoutCancel(t.Context())))
		shop.sized(fmt.Sprint("d-", n), 1, 900_000)
		kafka.Kill()
	}
	must(t, kafka.Start(context.WithoutCancel(t.Context())))
	healed := time.Now()
	shop.awaitPublished()
	t.Logf("all published %v after the broker was back", time.Since(healed))
	awaitStatus(t, p, "/healthz/consumption", 200)
	shop.judgeTopic()
	if n := ask[int64](s, `SELECT count(*) FROM outbox_failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
}

// Large messages vanish between relay and broker, without a word: that may be the network. So nothing is blocked, the other
// orders are published, and health and metric name the message that waits.
func TestAMessageThatIsNeverAnswered(t *testing.T) {
	t.Parallel()
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{Proxied: true})
	s := newStage(t, stageConfig{Brokers: kafka.Brokers()})
	s.programBrokers = []string{kafka.Proxy().Addr()}
	shop := s.newShop()
	p := s.startRelay(func(c *config.Config) { c.StallLimit = 3 * time.Second })
	shop.append("o-0", 1, createdFor("c"))
	shop.awaitPublished()
	kafka.Proxy().OnlySmall(true)
	shop.sized("o-large", 1, 500_000)
	for i := range 20 {
		shop.append(fmt.Sprintf("s-%d", i), 1, createdFor("c"))
	}
	shop.awaitSQL(`SELECT count(*) = 1 FROM outbox`)
	awaitBody(t, p, "/healthz/consumption", 503, "o-large", "version 1", "waits for its acknowledgement")
	awaitMetric(t, p, func(n float64) bool { return n >= 3 }, "orderprojector_outbox_unacknowledged_seconds")
	awaitMetric(t, p, func(n float64) bool { return n == 1 }, "orderprojector_outbox_suspects")
	for i := range 20 {
		shop.append(fmt.Sprintf("s-%d", i), 2, order.Amended{Total: *euros(1)})
	}
	began := time.Now()
	shop.awaitSQL(`SELECT count(*) = 1 FROM outbox`)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the others waited for %v", took)
	}
	if n := ask[int64](s, `SELECT count(*) FROM outbox_failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
	kafka.Proxy().OnlySmall(false)
	shop.awaitPublished()
	awaitStatus(t, p, "/healthz/consumption", 200)
	awaitMetric(t, p, func(n float64) bool { return n == 0 }, "orderprojector_outbox_unacknowledged_seconds")
	shop.judgeTopic()
}

// What other programs may store that package outbox does not: each is published as it is, or holds its own order back with a reason.
func TestOddMessages(t *testing.T) {
	t.Parallel()
	const limit = 1_048_588
	s := newStage(t, stageConfig{Topic: []string{fmt.Sprint("max.message.bytes=", limit), "compression.type=uncompressed"}}).newShop()
	envelope := func(id, typ, version, data string) string {
		return fmt.Sprintf(`{"event_id":%q,"order_id":%q,"type":%q,"version":%s,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`, id+"-e1", id, typ, version, data)
	}
	store := func(id, typ, payload string) {
		s.exec(`INSERT INTO outbox (id, aggregateid, type, payload, traceparent) VALUES ($1 || '-e1', $1, $2, $3, $4)`, id, typ, payload, "00-"+strings.Repeat("é", 300))
	}
	odd := map[string]string{ // the reason that blocks, or ""
		"text-version": "invalid", "twice": "invalid", "deep": "invalid", "other-type": "invalid", "unknown-type": "", "at-limit": "", "too-large": "too_large",
	}
	store("text-version", "OrderPacked.v1", envelope("text-version", "OrderPacked.v1", `"1"`, `{}`))
	store("twice", "OrderPacked.v1", strings.Replace(envelope("twice", "OrderPacked.v1", `1`, `{}`), `"version":1`, `"version":1,"version":1`, 1))
	store("deep", "OrderPacked.v1", envelope("deep", "OrderPacked.v1", `1`, strings.Repeat(`[`, 1500)+strings.Repeat(`]`, 1500)))
	store("other-type", "OrderShipped.v1", envelope("other-type", "OrderPacked.v1", `1`, `{}`))
	store("unknown-type", "Ünbekannt.v77", envelope("unknown-type", "Ünbekannt.v77", `1`, `{"note":"\\u0000"}`))
	// The database itself refuses a NUL.
	if _, err := s.pool.Exec(t.Context(), `INSERT INTO outbox (id, aggregateid, type, payload) VALUES ('n', 'n', 'OrderPacked.v1', $1)`,
		envelope("n", "OrderPacked.v1", `1`, `{"note":"\u0000"}`)); err == nil {
		odd["n"] = "invalid"
		t.Log("a NUL is stored")
	}
	// A batch of one record is as large as the topic allows, and another one is larger by one byte.
	small := len(envelope("at-limit", "OrderPacked.v1", "1", `{"note":""}`))
	exact := limit - 61 - small - len("at-limit") - len("traceparent") - 3 - 600 - 14
	store("at-limit", "OrderPacked.v1", envelope("at-limit", "OrderPacked.v1", "1", `{"note":"`+noise(exact)+`"}`))
	store("too-large", "OrderPacked.v1", envelope("too-large", "OrderPacked.v1", "1", `{"note":"`+noise(exact+1-len("too-large")*3+len("at-limit")*3)+`"}`))
	for i := range 20 {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	s.startRelay()
	blocked := 0
	for id, reason := range odd {
		if reason == "" {
			s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM outbox WHERE aggregateid = $1)`, id)
			s.note(id, 1, id+"-e1")
			continue
		}
		blocked++
		s.awaitSQL(`SELECT EXISTS (SELECT FROM outbox_failures WHERE aggregateid = $1 AND reason = $2 AND status = 'blocked' AND octet_length(detail) < 3000)`, id, reason)
	}
	s.awaitSQL(`SELECT count(*) = $1 FROM outbox`, blocked)
	if n := len(s.read()); n != 20+len(odd)-blocked {
		t.Errorf("%d records in the topic", n)
	}
}
