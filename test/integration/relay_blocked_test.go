//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// A message that the topic refuses blocks its own order alone. It alarms, and there are three ways on.
func TestABlockedMessageBlocksItsOrderAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Topic: []string{"max.message.bytes=2000", "compression.type=uncompressed"}}).newShop()
	p := s.startRelay()
	large := order.Cancelled{Reason: noise(990)} // with its envelope and the batch's own bytes
	grown := func(id string) {
		s.append(id, 1, createdFor("c"))
		s.exec(`INSERT INTO outbox (id, aggregateid, type, payload)
			VALUES ($1 || '-e2', $1, 'OrderAmended.v1', json_build_object('event_id', $1 || '-e2', 'order_id', $1, 'type', 'OrderAmended.v1', 'version', 2,
				'occurred_at', '2026-01-01T10:00:00Z', 'data', json_build_object('total', json_build_object('amount', '5.00', 'currency', 'EUR'), 'note', $2::text)))`,
			id, noise(4000))
		s.note(id, 2, id+"-e2")
		s.append(id, 3, order.Paid{PaymentID: "p", Amount: *euros(500)})
		s.append(id, 4, large)
	}
	grown("o-retried")
	grown("o-discarded")
	// Invalid ones, that another program wrote: of another order, and no event at all.
	s.exec(`INSERT INTO outbox (id, aggregateid, type, payload) VALUES
		('e-x', 'o-alien', 'OrderPacked.v1', '{"event_id":"e-x","order_id":"o-other","type":"OrderPacked.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z","data":{}}'),
		('e-y', 'o-nothing', 'OrderPacked.v1', '{"version":7}')`)
	const others = 200
	for i := range others {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	s.awaitSQL(`SELECT count(*) = 8 FROM outbox`) // four of each kind of blocked order, at two orders; one of each invalid one
	awaitBody(t, p, "/healthz/consumption", 503, "hold orders back: 4", "o-retried", "outbox list")
	awaitMetric(t, p, func(n float64) bool { return n == 4 }, "orderprojector_outbox_blocked_orders")
	awaitMetric(t, p, func(n float64) bool { return n == 2 }, "orderprojector_outbox_refused_total", `reason="too_large"`)
	awaitMetric(t, p, func(n float64) bool { return n == 2 }, "orderprojector_outbox_refused_total", `reason="invalid"`)

	var status struct {
		Unpublished     int64 `json:"unpublished"`
		BlockedMessages int64 `json:"blocked_messages"`
		BlockedOrders   int64 `json:"blocked_orders"`
		BehindBlocked   int64 `json:"behind_blocked"`
		Relay           *struct{ PID int32 }
	}
	s.commandJSON(&status, "outbox", "status", "-o", "json")
	if status.Unpublished != 8 || status.BlockedMessages != 4 || status.BlockedOrders != 4 || status.BehindBlocked != 4 || status.Relay == nil {
		t.Errorf("status: %+v", status)
	}
	var listed []struct {
		Seq     int64
		Status  string
		OrderID string `json:"order_id"`
		Version int64
		Reason  string
		Detail  string
	}
	s.commandJSON(&listed, "outbox", "list", "-o", "json")
	seqs := map[string]string{}
	var got []string
	for _, m := range listed {
		seqs[m.OrderID] = fmt.Sprint(m.Seq)
		got = append(got, fmt.Sprint(m.OrderID, " ", m.Version, " ", m.Status, " ", m.Reason))
	}
	if diff := cmp.Diff([]string{"o-retried 2 blocked too_large", "o-discarded 2 blocked too_large", "o-alien 1 blocked invalid", "o-nothing 7 blocked invalid"}, got); diff != "" {
		t.Errorf("outbox list (-want +got):\n%s", diff)
	}
	if all := s.endsWith(0, "outbox", "list", "--all", "--order", "o-retried"); !strings.Contains(all, "waiting") {
		t.Errorf("outbox list --all:\n%s", all)
	}

	// Not without a reason, not what is not blocked, not what is not there.
	s.endsWith(2, "outbox", "discard", seqs["o-alien"])
	s.endsWith(4, "outbox", "discard", "999999", "--comment", "x")
	s.endsWith(1, "outbox", "discard", fmt.Sprint(ask[int64](s.stage, `SELECT max(seq) FROM outbox WHERE aggregateid = 'o-retried'`)), "--comment", "x")

	s.endsWith(0, "outbox", "discard", seqs["o-discarded"], seqs["o-alien"], seqs["o-nothing"], "--comment", "nobody needs it", "--actor", "me")
	s.await("o-discarded", 3) // without version 2
	s.endsWith(0, "outbox", "retry", seqs["o-retried"])
	awaitMetric(t, p, func(n float64) bool { return n == 3 }, "orderprojector_outbox_refused_total", `reason="too_large"`)
	if attempts := ask[int32](s.stage, `SELECT attempts FROM outbox_failures`); attempts != 2 {
		t.Errorf("%d attempts", attempts)
	}
	altered, err := s.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("100000")}}, s.topic)
	must(t, err)
	must(t, altered[0].Err)
	testenv.Await(t, patience, func() (bool, string) { // the broker applies it in its own time
		s.command("outbox", "retry", "--all", "--comment", "larger")
		n := ask[int64](s.stage, `SELECT count(*) FROM outbox`)
		return n == 0, fmt.Sprint(n, " unpublished")
	})
	awaitStatus(t, p, "/healthz/consumption", 200)

	// What was discarded is there, and comes after all.
	var kept []struct {
		OrderID string `json:"order_id"`
		By      string
		Comment string
		Payload struct {
			EventID string `json:"event_id"`
		}
	}
	s.commandJSON(&kept, "outbox", "list", "--discarded", "--order", "o-discarded", "-o", "json")
	if len(kept) != 1 || kept[0].By != "me" || kept[0].Comment != "nobody needs it" || kept[0].Payload.EventID != "o-discarded-e2" {
		t.Errorf("discarded: %+v", kept)
	}
	s.endsWith(0, "outbox", "restore", seqs["o-discarded"], "--comment", "it was needed")
	s.await("o-discarded", 4)
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM outbox_failures)`)
	if n := ask[int64](s.stage, `SELECT count(*) FROM audit_log WHERE action LIKE 'outbox.%' AND (action <> 'outbox.discard' OR actor = 'me')`); n < 6 {
		t.Errorf("%d entries in the audit log", n)
	}
	if n := len(s.read()); n != others+8 {
		t.Errorf("%d records in the topic", n)
	}
}

// endsWith runs a command that must end with a code, and returns what it printed.
func (s *stage) endsWith(want int, args ...string) string {
	s.t.Helper()
	code, stdout, stderr := s.command(args...)
	if code != want {
		s.t.Fatalf("%s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// noise is text that does not compress.
func noise(n int) string {
	var b strings.Builder
	for i := uint64(88172645463325252); b.Len() < n; {
		i ^= i << 13
		i ^= i >> 7
		i ^= i << 17
		fmt.Fprintf(&b, "%x", i)
	}
	return b.String()[:n]
}
