//go:build unix

package integration_test

import (
	"encoding/json"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
)

// rebuildReport is what rebuild prints.
type rebuildReport struct {
	ID               int64  `json:"id"`
	Status           string `json:"status"`
	Orders           int64  `json:"orders"`
	Beyond           int64  `json:"orders_beyond"`
	DifferingOrders  int64  `json:"differing_orders"`
	DifferingLetters int64  `json:"differing_letters"`
	Generation       int64  `json:"generation"`
	Differences      []struct {
		OrderID string `json:"order_id"`
		Cause   string `json:"cause"`
		Detail  string `json:"detail"`
	} `json:"differences"`
	WritersWaited float64 `json:"writers_waited_seconds"`
	ReadersWaited float64 `json:"readers_waited_seconds"`
}

// rebuild runs rebuild, or a command below it, and returns its report.
func (s *stage) rebuild(code int, args ...string) rebuildReport {
	s.t.Helper()
	stdout := s.expect(code, "", append([]string{"rebuild", "-o", "json", "--comment", "test"}, args...)...)
	var r rebuildReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		s.t.Fatalf("rebuild %v: %v\n%s", args, err, stdout)
	}
	return r
}

// contract is a digest of what the contract says of the rows.
func (s *stage) contract() string {
	return ask[string](s, `SELECT concat_ws('/',
		(SELECT md5(coalesce(string_agg(concat_ws('|', order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor, created_at, updated_at,
			last_event_id, projection_status, waiting_for_version, kafka_topic, kafka_partition, kafka_offset), E'\n' ORDER BY order_id), '')) FROM orders),
		(SELECT md5(coalesce(string_agg(e::text, E'\n' ORDER BY order_id, version), '')) FROM order_events e),
		(SELECT md5(coalesce(string_agg(concat_ws('|', order_id, projection_status, waiting_for_version), E'\n' ORDER BY order_id), '')) FROM waiting_orders),
		(SELECT md5(coalesce(string_agg(concat_ws('|', order_id, version, event_id, digest), E'\n' ORDER BY order_id, version, event_id, digest), '')) FROM parked_events),
		(SELECT md5(coalesce(string_agg(concat_ws('|', kafka_partition, kafka_offset, order_id, version, reason, blocks, status), E'\n' ORDER BY kafka_partition, kafka_offset), '')) FROM dead_letters),
		(SELECT md5(coalesce(string_agg(concat_ws('|', kafka_partition, next_offset, applied, duplicate, stale, conflict, parked, invalid, unsupported, illegal, ignored), E'\n'
			ORDER BY kafka_partition), '')) FROM projection_watermarks))`)
}

// A rebuild without members: nothing differs, the tables are exchanged, and all is as it was; so after
// the whole database is lost.
func TestRebuildGivesBackTheSameRows(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 3, Forgiving: true})
	s.generate(generate.Config{Seed: seed, Orders: 2000, Rates: generate.Faulty(), Delay: 50, Long: 150, Amendments: 90})
	p := s.start()
	s.awaitDrained()
	p.Stop()
	s.judge()
	before := s.contract()
	r := s.rebuild(0)
	if r.Status != "swapped" || r.DifferingOrders != 0 || r.DifferingLetters != 0 || r.Orders == 0 {
		t.Errorf("%+v", r)
	}
	if after := s.contract(); after != before {
		t.Errorf("%s, then %s", before, after)
	}
	s.judge()
}
