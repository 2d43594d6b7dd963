//go:build unix

package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// A backlog of large messages is published in small portions, however short the deadline of a statement is, and in bounded memory.
func TestRelayCatchesUpWithLargeMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Topic: []string{"max.message.bytes=2000000"}}).newShop()
	const messages = 300
	s.exec(`INSERT INTO outbox (id, aggregateid, type, payload)
		SELECT e.id, e.order_id, 'OrderAmended.v1', json_build_object('event_id', e.id, 'order_id', e.order_id, 'type', 'OrderAmended.v1', 'version', v,
			'occurred_at', '2026-01-01T10:00:00Z', 'data', json_build_object('total', json_build_object('amount', '5.00', 'currency', 'EUR'), 'note', $2::text))
		FROM generate_series(1, 2) v, generate_series(1, $1::int / 2) o, LATERAL (SELECT 'o-' || o AS order_id, format('o-%s-e%s', o, v) AS id) e`, messages, noise(900_000))
	for o := 1; o <= messages/2; o++ {
		for v := int64(1); v <= 2; v++ {
			s.note(fmt.Sprint("o-", o), v, fmt.Sprintf("o-%d-e%d", o, v))
		}
	}
	p := s.spawnRelay("--database-statement-timeout=400ms", "--database-lock-timeout=400ms")
	began := time.Now()
	testenv.Await(t, 2*time.Minute, func() (bool, string) {
		n := ask[int64](s.stage, `SELECT count(*) FROM outbox`)
		return n == 0, fmt.Sprint(n, " unpublished")
	})
	t.Logf("%d messages of 900 kB in %v, %d MiB of memory at most", messages, time.Since(began), p.PeakMemory()>>20)
	if peak := p.PeakMemory(); peak > 256<<20 {
		t.Errorf("%d MiB were used", peak>>20)
	}
	awaitStatus(t, p, "/healthz/consumption", 200)
	s.judgeTopic()
}

// A limit of the topic that was too low blocks messages. Once it is raised past their size, the relay publishes them by itself:
// one that runs within a minute, one that starts at once. What is still too large stays blocked.
func TestARaisedLimitReleasesMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Topic: []string{"max.message.bytes=2000", "compression.type=uncompressed"}}).newShop()
	limit := func(bytes string) {
		altered, err := s.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr(bytes)}}, s.topic)
		must(t, err)
		must(t, altered[0].Err)
	}
	p := s.startRelay()
	const orders = 300
	for i := range orders {
		id := fmt.Sprint("o-", i)
		s.sized(id, 1, 4000+10*i)
		s.append(id, 2, order.Amended{Total: *euros(5)})
	}
	s.sized("o-larger", 1, 20_000)
	s.awaitSQL(`SELECT count(*) = $1 FROM outbox_failures WHERE reason = 'too_large' AND status = 'blocked'`, orders+1)
	limit("10000")
	raised := time.Now()
	testenv.Await(t, 2*time.Minute, func() (bool, string) {
		n := ask[int64](s.stage, `SELECT count(*) FROM outbox`)
		return n == 1, fmt.Sprint(n, " unpublished")
	})
	t.Logf("released after %v", time.Since(raised))
	if attempts := ask[int32](s.stage, `SELECT attempts FROM outbox_failures WHERE aggregateid = 'o-larger' AND status = 'blocked'`); attempts != 1 {
		t.Errorf("the message that is still too large was tried %d times", attempts)
	}
	must(t, p.stop())
	limit("30000")
	p = s.startRelay(func(c *config.Config) { c.StallLimit = time.Minute })
	began := time.Now()
	s.awaitPublished()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("released %v after the start", took)
	}
	awaitStatus(t, p, "/healthz/consumption", 200)
	s.judgeTopic()
}
