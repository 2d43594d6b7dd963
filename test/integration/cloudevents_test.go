//go:build unix

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// cloudEvent is what event writes as plain JSON, as a CloudEvent for the SDK to write.
func cloudEvent(orderID string, version int64, typ, data string) projectiontest.CloudEvent {
	return projectiontest.CloudEvent{
		EventID: fmt.Sprintf("%s-e%d", orderID, version), OrderID: orderID, Type: typ, Version: version,
		OccurredAt: time.Date(2026, 1, 1, 10, 0, int(version%60), 0, time.UTC), Data: data,
	}
}

const (
	createdData = `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"}}`
	linesData   = `{"customer_id":"c-1","lines":[{"sku":"tea","quantity":3,"unit_price":{"amount":"5.00","currency":"EUR"}},{"sku":"cup","quantity":1,"unit_price":{"amount":4.99,"currency":"EUR"}}]}`
	paidData    = `{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}`
)

// sent is a record as it was written, to be produced to partition 0.
func sent(r projection.Record) *kgo.Record {
	record := &kgo.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return record
}

func (s *stage) binary(c projectiontest.CloudEvent) *kgo.Record {
	s.t.Helper()
	r, err := c.Binary(s.t.Context())
	must(s.t, err)
	return sent(r)
}

func (s *stage) structured(c projectiontest.CloudEvent) *kgo.Record {
	s.t.Helper()
	r, err := c.Structured(s.t.Context())
	must(s.t, err)
	return sent(r)
}

// without takes headers out of a record.
func without(r *kgo.Record, key string) *kgo.Record {
	kept := r.Headers[:0:0]
	for _, h := range r.Headers {
		if h.Key != key {
			kept = append(kept, h)
		}
	}
	r.Headers = kept
	return r
}

// An order whose events come in three formats, some of them out of order, is one order; its events
// again in another format are duplicates, and changed ones are conflicts. What is stored of them is decoded again with its
// headers: parked events, letters that are redriven, with a substitute or without, replays and verification.
func TestCloudEventsBesidePlainEvents(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Forgiving: true}) // the projection is emptied under the commits
	p := s.start()
	s.produce(
		s.binary(cloudEvent("mixed", 1, "OrderCreated.v1", createdData)),
		s.binary(cloudEvent("mixed", 4, "OrderShipped.v1", `{"carrier":"DHL","tracking_number":"t-1"}`)), // parks
		s.structured(cloudEvent("mixed", 3, "OrderPacked.v1", `{}`)),                                     // parks
		paid("mixed", 2),
		created("plain"), paid("plain", 2),
		s.structured(cloudEvent("lines", 1, "OrderCreated.v2", linesData)), s.binary(cloudEvent("lines", 2, "OrderPaid.v1", paidData)),
	)
	s.awaitOrder("mixed", 4, "ok")
	s.awaitOrder("lines", 2, "ok")
	s.awaitDrained()

	s.produce( // the same events, in another format each
		created("mixed"), s.structured(cloudEvent("mixed", 1, "OrderCreated", createdData)), s.binary(cloudEvent("mixed", 2, "OrderPaid.v1", paidData)),
		packed("mixed", 3), s.structured(cloudEvent("mixed", 4, "OrderShipped.v1", `{"tracking_number":"t-1","carrier":"DHL"}`)),
		s.binary(cloudEvent("plain", 1, "OrderCreated.v1", createdData)), s.structured(cloudEvent("plain", 2, "OrderPaid.v1", paidData)),
		s.binary(cloudEvent("lines", 1, "OrderCreated.v2", linesData)),
	)
	otherContent := map[*kgo.Record]string{}
	for _, r := range []*kgo.Record{
		s.binary(cloudEvent("mixed", 1, "OrderCreated.v1", strings.Replace(createdData, "19.99", "19.98", 1))),
		s.binary(cloudEvent("plain", 2, "OrderPaid.v1", strings.Replace(paidData, "p-1", "p-2", 1))),
		s.structured(cloudEvent("lines", 1, "OrderCreated.v2", strings.Replace(linesData, "tea", "coffee", 1))),
		created("lines"), // the same total, but the lines are gone
	} {
		otherContent[r] = "another content"
		s.produce(r)
	}
	s.awaitDrained()
	if got := s.counted("duplicate"); got != 8 {
		t.Errorf("%d duplicates, want 8", got)
	}
	for r, detail := range otherContent {
		if letter := s.letterAt(0, r.Offset); letter.reason != "conflict" || !strings.Contains(letter.detail, detail) {
			t.Errorf("the letter of offset %d: %s: %s", r.Offset, letter.reason, letter.detail)
		}
	}

	// Letters that block: what a redrive decodes has its headers.
	s.produce(
		s.binary(cloudEvent("bad", 1, "OrderCreated.v1", createdData)),
		without(s.binary(cloudEvent("bad", 2, "OrderPaid.v1", paidData)), "ce_source"),
		s.binary(cloudEvent("bad", 3, "OrderPacked.v1", `{}`)),
		s.binary(cloudEvent("again", 1, "OrderPaid.v1", paidData)), // illegal, until what comes before it is there under its version
		s.structured(cloudEvent("batch", 1, "OrderCreated.v1", createdData)),
		&kgo.Record{Key: []byte("batch"), Value: []byte(`[{},{}]`), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents-batch+json")}}},
		record("framed", "\x00\x00\x00\x00\x2a"+string(created("framed").Value)),
	)
	s.awaitDrained()
	s.judge()
	if detail := ask[string](s, `SELECT detail FROM dead_letters WHERE order_id = 'bad'`); detail != "ce_source is missing or empty" {
		t.Errorf("the letter says %q", detail)
	}
	if detail := ask[string](s, `SELECT detail FROM dead_letters WHERE order_id = 'batch'`); !strings.Contains(detail, "publish one record per event") {
		t.Errorf("the letter of a batch says %q", detail)
	}
	if detail := ask[string](s, `SELECT detail FROM dead_letters WHERE order_id = 'framed' AND NOT blocks`); !strings.Contains(detail, "schema ID 42") {
		t.Errorf("the letter of a framed value says %q", detail)
	}
	s.operate("ce_source is missing or empty", "dlq", "redrive", s.letter("bad", 2), "--execute")
	s.operate("illegal before OrderCreated", "dlq", "redrive", s.letter("again", 1), "--execute")
	file := filepath.Join(t.TempDir(), "event.json")
	must(t, os.WriteFile(file, paid("bad", 2).Value, 0o600))
	s.operate("version 3, packed; ok", "dlq", "redrive", s.letter("bad", 2), "--with", file, "--execute")
	s.produce(s.binary(cloudEvent("bad", 4, "OrderShipped.v1", `{"carrier":"DHL","tracking_number":"t-1"}`)), s.structured(cloudEvent("bad", 4, "OrderShipped.v1", `{"carrier":"DHL","tracking_number":"t-1"}`)))
	s.awaitOrder("bad", 4, "ok")
	s.awaitDrained()
	s.judge()

	s.operate("", "verify")
	s.operate("", "replay", "--from-earliest", "--topic", s.topic)
	s.operate("", "rebuild", "--orders", "mixed,bad,lines", "--execute", "--comment", "again")
	s.operate("pending", "orders", "as-of", "mixed", "--version", "1")
	p.Stop()
	s.exec(`TRUNCATE order_rows, order_ledger_archive, parked_events, projection_watermarks; DELETE FROM dead_letters WHERE status NOT IN ('discarded', 'redriven')`)
	s.start()
	s.awaitSQL(`SELECT count(*) = 1 FROM projection_watermarks`)
	s.awaitDrained()
	result := s.fold()
	for _, id := range []string{"mixed", "plain", "lines", "bad"} {
		want := result.Order(id)
		s.awaitOrder(id, want.Version, want.Status)
	}
}

// Faulty traffic in every format and schema version ends in what the rules alone make of it, with two members and a replay of all.
func TestFaultyTrafficInEveryFormat(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 3})
	first := s.start()
	traffic := generate.Config{Seed: randomSeed(t), Orders: 1500, Rates: generate.Faulty()}
	traffic.CloudEvents, traffic.Lines, traffic.Poison, traffic.Reencoded = 0.6, 0.4, 0.05, 0.1
	s.start()
	s.generate(traffic)
	first.Stop()
	s.awaitDrained()
	s.judge()
	if s.counted("applied") == 0 || s.counted("duplicate") == 0 || s.counted("invalid") == 0 {
		t.Error("the traffic lacks something")
	}
	s.operate("", "verify")
}
