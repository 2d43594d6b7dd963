//go:build unix

package integration_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// rough is a mix of every fault at rates at which they meet each other often.
func rough() generate.Rates {
	return generate.Rates{
		Duplicate: 0.08, Reencoded: 0.06, LateRepeat: 0.06, Disorder: 0.15, Conflict: 0.04, Poison: 0.04,
		Illegal: 0.03, Unsupported: 0.015, Gap: 0.02, Tombstone: 0.02, NullKey: 0.03, HugeVersion: 0.005,
	}
}

// Every fault that the generator knows ends where the fold says, and reading the
// whole topic once more touches no row.
func TestEveryFaultIsAccountedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		traffic generate.Config
		batch   int // records per batch; 0 for the default
		cache   config.ByteSize
	}{
		{traffic: generate.Config{Seed: 1, Orders: 2400, Long: 300, Amendments: 120, Rates: rough()}},
		{traffic: generate.Config{Seed: randomSeed(t), Orders: 2400, Long: 200, Amendments: 80, Rates: rough()}, batch: 100, cache: 1 << 20},
		{traffic: generate.Config{Seed: 3, Orders: 1200, InFlight: 1200, Delay: 1000, Rates: generate.Faulty()}},
	} {
		t.Run(fmt.Sprint("seed ", c.traffic.Seed), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, stageConfig{Partitions: 4})
			size := func(cfg *config.Config) {
				if c.batch > 0 {
					cfg.Projection.BatchMaxRecords, cfg.Projection.CacheBytes = c.batch, c.cache
				}
			}
			summary := s.generate(c.traffic)
			for _, fault := range generate.Faults() {
				if summary.Faults[fault] == 0 {
					t.Errorf("the traffic has no %v", fault)
				}
			}
			p := s.start(size)
			s.awaitDrained()
			result := s.judge()
			if total := result.Counts().Total(); total != summary.Records {
				t.Errorf("%d records were accounted for, %d were sent", total, summary.Records)
			}
			p.Stop()
			s.rereadAll(summary.Records, size)
			s.compare(result)
		})
	}
}

// rereadAll rewinds the group to the start of the topic, lets the program read
// everything again, and checks that this touched no row. The group has no members before and after.
func (s *stage) rereadAll(records int64, changes ...func(*config.Config)) {
	s.t.Helper()
	s.awaitDisconnected()
	before, beforeRows := s.touched(), s.contents()

	s.readAgain()
	p := s.start(changes...)
	testenv.Await(s.t, patience, func() (bool, string) {
		got := metric(s.t, p.Registry(), "orderprojector_reread_records_total")
		return int64(got) == records, fmt.Sprintf("%v of %d records were read again", got, records)
	})
	s.awaitDrained()
	p.Stop()
	s.awaitDisconnected()

	if after := s.touched(); after != before {
		s.t.Errorf("reading again touched rows (inserted/updated/deleted):\nbefore %s\nafter  %s", before, after)
	}
	for relation, rows := range s.contents() {
		if rows != beforeRows[relation] {
			s.t.Errorf("reading again changed the contents of %s", relation)
		}
	}
}

// readAgain sets the group's offsets to the start of the topic.
func (s *stage) readAgain() {
	s.t.Helper()
	start, err := s.admin.ListStartOffsets(s.t.Context(), s.topic)
	must(s.t, err)
	s.sampler.Forget()
	must(s.t, s.admin.CommitAllOffsets(s.t.Context(), s.group, start.Offsets()))
	s.sampler.Forget()
}

// awaitDisconnected waits until the program's sessions have ended, which is when the
// last of their statistics count.
func (s *stage) awaitDisconnected() {
	s.t.Helper()
	s.awaitSQL(`SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'orderprojector%'`)
}

// projected lists the tables that the projector writes.
var projected = []string{"order_rows", "order_ledger_archive", "parked_events", "dead_letters", "projection_watermarks"}

// touched counts the rows that were ever touched, by PostgreSQL's own counters.
func (s *stage) touched() string {
	s.t.Helper()
	return ask[string](s, `SELECT string_agg(format('%s %s/%s/%s', relname, n_tup_ins, n_tup_upd, n_tup_del), ', ' ORDER BY relname)
		FROM pg_stat_user_tables WHERE relname = ANY ($1)`, projected)
}

// contents fingerprints each table: every byte of every row, and which transaction wrote it.
func (s *stage) contents() map[string]string {
	s.t.Helper()
	prints := map[string]string{}
	for _, relation := range projected {
		prints[relation] = ask[string](s, `SELECT coalesce(md5(string_agg(r, E'\n' ORDER BY r)), '')
			FROM (SELECT t.xmin::text || ' ' || t::text FROM `+relation+` t) AS rows (r)`)
	}
	return prints
}

// metric returns the value of a counter or gauge with the labels given as
// "name=value", or of all that the labels fit, together.
func metric(t testing.TB, registry prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				sum += m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				sum += m.GetGauge().GetValue()
			default:
				t.Fatalf("%s is neither a counter nor a gauge", name)
			}
		}
	}
	return sum
}
