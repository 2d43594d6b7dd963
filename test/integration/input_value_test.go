//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A tombstone, an absent value and an absent key are three things (B23). Each
// is followed by a good event of the same order.
func TestAbsentIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	next := int64(1)
	for _, c := range []struct {
		name    string
		record  *kgo.Record
		outcome string
	}{
		{"a tombstone", &kgo.Record{Key: []byte("o-1")}, "ignored"},
		{"a tombstone with a null key", &kgo.Record{}, "ignored"},
		{"a tombstone with an empty key", &kgo.Record{Key: []byte{}}, "ignored"},
		{"an empty value", record("o-1", ""), "invalid"},
		{"null", record("o-1", "null"), "invalid"},
		{"{}", record("o-1", "{}"), "invalid"},
		{"[]", record("o-1", "[]"), "invalid"},
		{"an empty key", &kgo.Record{Key: []byte{}, Value: amended("o-1", 2, "1.00").Value}, "invalid"},
		{"a key with a newline", &kgo.Record{Key: []byte("o-1\n"), Value: amended("o-1", 2, "1.00").Value}, "invalid"},
	} {
		before := s.counted(c.outcome)
		good := created("o-1")
		if next > 1 {
			good = amended("o-1", next, fmt.Sprintf("%d.00", next))
		}
		good.Key = nil // which is accepted as long as the body is whole
		s.produce(c.record, good)
		s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = 'o-1' AND version = $1 AND projection_status = 'ok')`, next)
		if got := s.counted(c.outcome); got != before+1 {
			t.Errorf("%s: %s was counted %d times, wanted once", c.name, c.outcome, got-before)
		}
		next++
	}
	s.awaitDrained()
	s.judge()
	// The tombstones erased nothing, and no ghost came of what was empty.
	if n := ask[int](s, `SELECT count(*) FROM order_rows`); n != 1 {
		t.Errorf("%d orders, wanted one", n)
	}
}

// counted is how often an outcome was counted, in all partitions.
func (s *stage) counted(outcome string) int64 {
	s.t.Helper()
	return ask[int64](s, `SELECT coalesce(sum((to_jsonb(w) ->> $1)::bigint), 0)::bigint FROM projection_watermarks w`, outcome)
}

// Versions beyond what a float holds park exactly, and are shown exactly.
func TestHugeVersionsParkExactly(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	huge := []int64{1<<53 + 1, 1<<53 + 3, 1<<63 - 1}
	s.produce(created("o-1"))
	for _, version := range huge {
		s.produce(packed("o-1", version), packed("o-2", version))
	}
	s.awaitDrained()
	s.judge()

	var got []int64
	rows, err := s.pool.Query(t.Context(), `SELECT version FROM parked_events WHERE order_id = 'o-1' ORDER BY version`)
	must(t, err)
	for rows.Next() {
		var version int64
		must(t, rows.Scan(&version))
		got = append(got, version)
	}
	must(t, rows.Err())
	if fmt.Sprint(got) != fmt.Sprint(huge) {
		t.Errorf("parked versions %v, wanted %v", got, huge)
	}

	for _, orderID := range []string{"o-1", "o-2"} {
		var order struct {
			HeldBackBy struct {
				ParkedEvents int         `json:"parked_events"`
				ParkedFrom   json.Number `json:"parked_from_version"`
			} `json:"held_back_by"`
		}
		s.commandJSON(&order, "orders", "get", orderID)
		if order.HeldBackBy.ParkedFrom != "9007199254740993" || order.HeldBackBy.ParkedEvents != 3 {
			t.Errorf("orders get %s: %+v", orderID, order.HeldBackBy)
		}
	}
	var timeline struct {
		Entries []struct {
			Kind    string      `json:"kind"`
			Version json.Number `json:"version"`
		} `json:"entries"`
	}
	s.commandJSON(&timeline, "orders", "timeline", "o-1")
	var shown []string
	for _, e := range timeline.Entries {
		shown = append(shown, e.Kind+" "+e.Version.String())
	}
	if want := "applied 1, parked 9007199254740993, parked 9007199254740995, parked 9223372036854775807"; strings.Join(shown, ", ") != want {
		t.Errorf("timeline: %v", shown)
	}
}

// commandJSON runs a command and decodes its JSON, numbers exactly.
func (s *stage) commandJSON(into any, args ...string) {
	s.t.Helper()
	code, stdout, stderr := s.command(append(args, "--output", "json")...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, stdout)
	}
}

// Types and schema versions of the future hold their own order back and nobody
// else, however many there are (B22).
func TestUnknownTypesWait(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	p := s.start()
	s.produce(
		created("o-1"), paid("o-1", 2), record("o-1", event("o-1", 3, "OrderGiftWrapped", `{"paper":"red"}`)), packed("o-1", 4),
		created("o-2"), paid("o-2", 2), record("o-2", event("o-2", 3, "OrderShipped.v99", `{"carriers":["DHL"]}`)), packed("o-2", 4),
		created("o-3"), paid("o-3", 2), packed("o-3", 3),
		record("o-4", event("o-4", 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR","tax":"3.19"},"gift":true,"notes":[1,{"a":null}]}`)),
		record("o-4", event("o-4", 2, "OrderPaid", `{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"},"gift":true}`)),
	)
	big := strings.Repeat("x", 1_000_000) // what nobody asked for may be big, too
	s.produce(record("o-5", event("o-5", 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"},"note":"`+big+`"}`)), paid("o-5", 2))
	const burst = 1000
	var records []*kgo.Record
	for i := range burst {
		id := fmt.Sprintf("b-%04d", i)
		records = append(records, on(int32(i%2), created(id)), on(int32(i%2), record(id, event(id, 2, "OrderGiftWrapped.v3", `{}`))),
			on(int32(i%2), paid(id, 3)), on(int32(i%2), created("after-"+id)))
	}
	s.produce(records...)
	s.awaitDrained()
	result := s.judge()

	for _, c := range []struct {
		orderID, state, status, detail string
		version                        int64
	}{
		{"o-1", "paid", "blocked", `"OrderGiftWrapped"`, 2},
		{"o-2", "paid", "blocked", `"OrderShipped.v99"`, 2},
		{"o-3", "packed", "ok", "", 3},
		{"o-4", "paid", "ok", "", 2},
		{"o-5", "paid", "ok", "", 2},
		{"b-0999", "pending", "blocked", `"OrderGiftWrapped.v3"`, 1},
		{"after-b-0999", "pending", "ok", "", 1},
	} {
		o := result.Order(c.orderID)
		if o == nil || o.State != c.state || o.Status != c.status || o.Version != c.version {
			t.Errorf("order %s is %+v", c.orderID, o)
		}
		if c.status == "blocked" {
			reason := ask[string](s, `SELECT reason || ': ' || detail FROM dead_letters WHERE order_id = $1 AND blocks AND status = 'open'`, c.orderID)
			if want := "unsupported: unknown event type or schema version " + c.detail; reason != want {
				t.Errorf("order %s: %s, wanted %s", c.orderID, reason, want)
			}
		}
	}
	if status, body := p.get("/healthz/consumption"); status != 200 {
		t.Errorf("consumption is not healthy: %d %s", status, body)
	}
	if got := metric(t, p.Registry(), "orderprojector_events_total", "outcome=unsupported"); got != burst+2 {
		t.Errorf("%v unsupported events in the metrics, wanted %d", got, burst+2)
	}
}
