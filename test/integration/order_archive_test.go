//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The ledger of a long order goes on beyond its row: repeats, conflicts and
// reused event IDs are told from each other however late they come.
func TestALongOrderKeepsItsWholeLedger(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	p := s.start()
	const events = 300
	records := []*kgo.Record{created("long")}
	for version := int64(2); version <= events; version++ {
		records = append(records, amended("long", version, fmt.Sprintf("%d.00", version)))
	}
	s.produce(append(records, on(1, created("other")))...)
	s.awaitDrained()
	s.judge()

	for _, remembered := range []bool{true, false} {
		if !remembered {
			p.Stop()
			p = s.start()
		}
		duplicates, conflicts := s.counted("duplicate"), s.counted("conflict")
		s.produce(
			amended("long", 5, "5.00"), amended("long", events-64, fmt.Sprintf("%d.00", events-64)), amended("long", events-63, fmt.Sprintf("%d.00", events-63)),
			amended("long", events, fmt.Sprintf("%d.00", events)), created("long"),
			record("long", strings.Replace(string(amended("long", 7, "7.00").Value), `"7.00"`, `7.000`, 1)), // another content: a number is no string
			record("long", strings.ReplaceAll(string(amended("long", 8, "8.00").Value), `":`, `" : `)),
			record("long", strings.Replace(string(amended("long", 9, "9.00").Value), `9.00`, `9.01`, 1)),
			record("long", eventWithID("new", "long", 6, "OrderAmended.v1", `{"total":{"amount":"6.00","currency":"EUR"}}`)),
			record("long", eventWithID("long-e7", "long", events+1, "OrderAmended.v1", `{"total":{"amount":"1.00","currency":"EUR"}}`)),
			record("long", eventWithID("long-e290", "long", events+1, "OrderAmended.v1", `{"total":{"amount":"1.00","currency":"EUR"}}`)),
		)
		s.awaitDrained()
		s.judge()
		if d, c := s.counted("duplicate")-duplicates, s.counted("conflict")-conflicts; d != 6 || c != 5 {
			t.Errorf("remembered %v: %d duplicates and %d conflicts, wanted 6 and 5", remembered, d, c)
		}
	}
	var details []string
	rows, err := s.pool.Query(t.Context(), `SELECT DISTINCT detail FROM dead_letters ORDER BY detail`)
	must(t, err)
	for rows.Next() {
		var detail string
		must(t, rows.Scan(&detail))
		details = append(details, detail)
	}
	must(t, rows.Err())
	want := []string{
		`event ID "long-e290" is used by version 290 of this order, and now by version 301`,
		`event ID "long-e7" is used by version 7 of this order, and now by version 301`,
		`same event ID and version as the record at partition 0 offset 6, but another content`,
		`same event ID and version as the record at partition 0 offset 8, but another content`,
		`version 6 is event "long-e6" in the ledger, and event "new" here`,
	}
	if strings.Join(details, "\n") != strings.Join(want, "\n") {
		t.Errorf("the letters say\n%s", strings.Join(details, "\n"))
	}

	// The order goes on, and every event is to be seen, in order, wherever it is kept.
	s.produce(amended("long", events+1, "301.00"))
	s.awaitDrained()
	s.judge()
	if got := ask[string](s, `SELECT format('%s %s', count(*), bool_and(version = n)) FROM
		(SELECT version, row_number() OVER (ORDER BY version) AS n FROM order_events WHERE order_id = 'long') AS e`); got != "301 t" {
		t.Errorf("order_events: %s", got)
	}
	if got := ask[string](s, `SELECT format('%s %s', archived, cardinality(ledger_versions)) FROM order_rows WHERE order_id = 'long'`); got != "237 64" {
		t.Errorf("archived and kept in the row: %s", got)
	}
	var timeline struct {
		Entries []struct {
			Kind    string `json:"kind"`
			Version *int64 `json:"version"`
		} `json:"entries"`
	}
	s.commandJSON(&timeline, "orders", "timeline", "long")
	next := int64(1)
	for _, e := range timeline.Entries {
		if e.Kind == "applied" {
			if *e.Version != next {
				t.Fatalf("version %d follows version %d in the timeline", *e.Version, next-1)
			}
			next++
		}
	}
	if next != events+2 || len(timeline.Entries) != events+1+10 {
		t.Errorf("the timeline has %d entries, %d of them applied", len(timeline.Entries), next-1)
	}
}
