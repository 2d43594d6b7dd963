//go:build unix

package integration_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// The metrics have their names and labels, pass the linter, and say what the
// counts in the database say.
func TestMetricsSayWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.installGate("orderprojector-write")
	open := s.closeGate()
	s.generate(generate.Config{Seed: randomSeed(t), Orders: 600, Rates: rough()})
	p := s.start()
	// While the writes are held up, the lag shows.
	s.awaitAtGate()
	awaitGauge(t, p, func(lag float64) bool { return lag > 1000 }, "orderprojector_consumer_lag_records")
	awaitGauge(t, p, func(seconds float64) bool { return seconds > 0 }, "orderprojector_consumer_lag_seconds")
	open()
	s.awaitDrained()
	s.judge()

	for _, outcome := range projection.Outcomes() {
		if shown, counted := metric(t, p.Registry(), "orderprojector_events_total", "outcome="+outcome.String()), s.counted(outcome.String()); int64(shown) != counted {
			t.Errorf("%v %s events in the metrics, %d in the database", shown, outcome, counted)
		}
	}
	awaitGauge(t, p, func(lag float64) bool { return lag == 0 }, "orderprojector_consumer_lag_records")
	awaitGauge(t, p, func(seconds float64) bool { return seconds == 0 }, "orderprojector_consumer_lag_seconds")
	parked := ask[int64](s, `SELECT count(*) FROM parked_events`)
	awaitGauge(t, p, func(n float64) bool { return int64(n) == parked }, "orderprojector_parked_events")
	for _, reason := range []string{"invalid", "conflict", "unsupported", "illegal"} {
		for _, status := range []string{"open", "superseded"} {
			letters := ask[int64](s, `SELECT count(*) FROM dead_letters WHERE reason = $1 AND status = $2`, reason, status)
			awaitGauge(t, p, func(n float64) bool { return int64(n) == letters }, "orderprojector_dead_letters", "status="+status, "reason="+reason)
		}
	}

	for name, labels := range map[string]string{
		"events_total": "outcome", "apply_duration_seconds": "", "event_visible_seconds": "", "retries_total": "class",
		"consumer_lag_records": "partition,topic", "consumer_lag_seconds": "partition,topic", "retention_headroom_records": "partition,topic",
		"parked_events": "", "parked_oldest_seconds": "", "dead_letters": "reason,status", "dead_letters_oldest_seconds": "",
		"watermark_age_seconds": "partition,topic", "data_loss_total": "", "rebalances_total": "", "partitions_without_member": "", "database_oldest_snapshot_seconds": "", "build_info": "goversion,revision,version",
	} {
		if got, found := labelsOf(t, p, "orderprojector_"+name); !found || got != labels {
			t.Errorf("orderprojector_%s has the labels %q (there: %v), wanted %q", name, got, found, labels)
		}
	}
	problems, err := testutil.GatherAndLint(p.Registry())
	must(t, err)
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	status, body := p.get("/metrics")
	if status != 200 || !strings.Contains(body, "# TYPE orderprojector_events_total counter") {
		t.Errorf("/metrics: %d %s", status, clip(body))
	}
}

// awaitGauge waits until the sum of a metric's series is as it should be.
func awaitGauge(t testing.TB, p *program, is func(float64) bool, name string, labels ...string) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		got := metric(t, p.Registry(), name, labels...)
		return is(got), fmt.Sprintf("%s%v is %v", name, labels, got)
	})
}

// labelsOf returns the label names of a metric.
func labelsOf(t testing.TB, p *program, name string) (labels string, found bool) {
	t.Helper()
	families, err := p.Registry().Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			var names []string
			for _, l := range family.GetMetric()[0].GetLabel() {
				names = append(names, l.GetName())
			}
			slices.Sort(names)
			return strings.Join(names, ","), true
		}
	}
	return "", false
}

// Readiness follows the database; being alive does not, and an outage is not poison.
func TestReadinessFollowsTheDatabase(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	cfg, err := pgx.ParseConfig(s.dsn)
	must(t, err)
	proxy := testenv.StartProxy(t, net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)))
	s.programDSN = proxy.DSN(t, s.dsn)
	p := s.start()
	s.produce(created("o-1"))
	s.awaitDrained()
	p.awaitHTTP("/livez", 200, "ok")
	p.awaitHTTP("/readyz", 200, "ok")
	p.awaitHTTP("/healthz/consumption", 200, "ok")

	proxy.Cut()
	p.awaitHTTP("/readyz?verbose", 503, "database")
	p.awaitHTTP("/livez", 200, "ok")
	s.produce(record("o-1", "poison"), amended("o-1", 2, "2.00"))
	awaitGauge(t, p, func(n float64) bool { return n > 0 }, "orderprojector_retries_total", "class=transient")
	proxy.Heal()
	p.awaitHTTP("/readyz", 200, "ok")
	s.awaitDrained()
	s.judge()
}

// A partition that lost records it had not read is halted, says so and what to
// do, and the other goes on.
func TestAHaltedPartitionIsUnhealthy(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	p := s.start()
	s.produce(created("o-1"), on(1, created("p-1")))
	s.awaitDrained()
	p.Stop()
	s.produce(amended("o-1", 2, "2.00"), amended("o-1", 3, "3.00"))
	s.deleteBefore(0, 3)
	p = s.start()
	s.produce(on(1, created("p-2")))
	s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = 'p-2')`)
	p.awaitHTTP("/healthz/consumption", 503, "halted")
	p.awaitHTTP("/readyz", 200, "ok") // reads are served
	awaitGauge(t, p, func(n float64) bool { return n == 1 }, "orderprojector_partition_halted", "partition=0")
	if got := metric(t, p.Registry(), "orderprojector_partition_halted", "partition=1"); got != 0 {
		t.Errorf("the other partition is halted, too")
	}
	if _, body := p.get("/healthz/consumption"); !strings.Contains(body, s.topic+"-0") || strings.Contains(body, s.topic+"-1") {
		t.Errorf("/healthz/consumption does not name the partition: %s", body)
	}
}

// Consumption that stands still while there is lag is unhealthy, until it moves.
func TestAFrozenPartitionIsUnhealthy(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.installGate("orderprojector-write")
	consumer, _ := s.startConsumer(projection.JSONDecoder{}, func(c *kafkaio.ConsumerConfig) { c.StallLimit = 2 * time.Second })
	s.produce(created("o-1"))
	s.awaitDrained()
	if err := consumer.Healthy(); err != nil {
		t.Errorf("unhealthy although caught up: %v", err)
	}
	open := s.closeGate()
	s.produce(amended("o-1", 2, "2.00"), amended("o-1", 3, "3.00"))
	testenv.Await(t, patience, func() (bool, string) {
		err := consumer.Healthy()
		return err != nil && strings.Contains(err.Error(), s.topic+"-0"), fmt.Sprint("health: ", err)
	})
	open()
	s.awaitDrained()
	testenv.Await(t, patience, func() (bool, string) {
		err := consumer.Healthy()
		return err == nil, fmt.Sprint("health: ", err)
	})
	s.judge()
}
