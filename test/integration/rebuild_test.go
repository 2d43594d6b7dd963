//go:build unix

package integration_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/cli"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
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

// rebuild runs rebuild, or a command below it, in this process, and returns its report.
func (s *stage) rebuild(code int, args ...string) rebuildReport {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	got := cli.Execute(s.t.Context(), append([]string{"rebuild", "-o", "json", "--comment", "test", "--memory-limit", "0"}, args...), &cli.Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, LookupEnv: func(name string) (string, bool) {
			for _, setting := range s.env() {
				if value, ok := strings.CutPrefix(setting, name+"="); ok {
					return value, true
				}
			}
			return "", false
		},
	})
	var r rebuildReport
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || got != code {
		s.t.Fatalf("rebuild %v: exit code %d, want %d: %v\n%s%s", args, got, code, err, &stdout, &stderr)
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
			ORDER BY consumer_group, kafka_partition), '')) FROM projection_watermarks))`)
}

// moveTo goes on with another database.
func (s *stage) moveTo(dsn string) {
	s.t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	must(s.t, err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	must(s.t, err)
	s.t.Cleanup(pool.Close)
	s.dsn, s.programDSN, s.pool = dsn, dsn, pool
}

// The same rows, byte for byte in what the contract says of them: by a rebuild of what is there, and by run, by rebuild,
// and by rebuild behind a pooler of transactions after the whole database is lost.
func TestRebuildGivesBackTheSameRows(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 3, Forgiving: true})
	s.generate(generate.Config{Seed: seed, Orders: 1000, Rates: generate.Faulty(), Delay: 50, Long: 150, Amendments: 90})
	p := s.start()
	s.awaitDrained()
	p.Stop()
	s.judge()
	before := s.contract()
	check := func(what string) {
		t.Helper()
		if now := s.contract(); now != before {
			t.Errorf("%s: %s, and it was %s", what, now, before)
		}
	}
	if r := s.rebuild(0); r.Status != "swapped" || r.DifferingOrders != 0 || r.DifferingLetters != 0 || r.Orders == 0 {
		t.Errorf("%+v", r)
	}
	check("rebuild")
	// What a migration made is made alike: names of indexes and constraints, and what tables are stored with.
	if n := ask[int](s, `SELECT count(*) FROM (
			SELECT schemaname, tablename, indexname, replace(indexdef, schemaname || '.', '') AS def FROM pg_indexes WHERE schemaname IN ('public', 'orderprojector_old')
		) AS a WHERE tablename IN ('order_rows', 'order_ledger_archive', 'parked_events') AND NOT EXISTS (
			SELECT FROM pg_indexes b WHERE b.schemaname <> a.schemaname AND b.schemaname IN ('public', 'orderprojector_old') AND b.indexname = a.indexname
				AND replace(b.indexdef, b.schemaname || '.', '') = a.def)`); n != 0 {
		t.Errorf("%d indexes are not alike", n)
	}
	if n := ask[int](s, `SELECT count(DISTINCT (c.reloptions, pg_get_expr(d.adbin, d.adrelid))) FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'revision'
		LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.relname = 'order_rows'`); n != 1 {
		t.Errorf("order_rows has %d definitions", n)
	}

	odd := testenv.EmptyDatabase(t)
	s.moveTo(odd)
	s.exec(`CREATE SCHEMA "Odd one"`)
	s.moveTo(odd + `&search_path=%22Odd%20one%22`)
	testenv.Migrate(t, s.dsn)
	if r := s.rebuild(0); r.Status != "swapped" || r.DifferingOrders != 0 || r.Beyond == 0 {
		t.Errorf("%+v", r)
	}
	check("rebuild of nothing")
	p = s.start() // and the member agrees
	s.awaitDrained()
	p.Stop()
	s.judge()
	check("run after it")

	s.moveTo(testenv.Database(t))
	p = s.start()
	s.awaitSQL(`SELECT count(*) = 3 FROM projection_watermarks`)
	s.awaitDrained()
	p.Stop()
	check("run")

	s.moveTo(testenv.Database(t))
	s.programDSN = testenv.StartPgBouncer(t, s.dsn, nil).DSN(t, s.dsn) + "&default_query_exec_mode=cache_describe"
	if r := s.rebuild(0); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	check("rebuild behind a pooler")
}
