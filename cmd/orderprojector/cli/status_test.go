package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// ages and times, which differ from run to run.
var passing = regexp.MustCompile(`the oldest for \S+|since 20\S+Z`)

func TestPauseStatusResume(t *testing.T) {
	t.Parallel()
	kafka, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"orders.events": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	dsn := testenv.Database(t)
	seed(t, dsn)
	exec(t, dsn, `INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset, applied, invalid, updated_at)
		VALUES ('orderprojector', 'orders.events', '00000000-0000-0000-0000-000000000001', 0, 0, 3, 2, '2026-01-02T00:00:00Z')`)
	env := map[string]string{"DATABASE_URL": dsn, "KAFKA_BOOTSTRAP_SERVERS": strings.Join(kafka.Brokers(), ",")}
	expect := func(code int, line, stdout, stderr string) {
		t.Helper()
		got := run(t, env, strings.Split(line, "|")...)
		if got.code != code || passing.ReplaceAllString(got.stdout, "…") != stdout || !strings.Contains(got.stderr, stderr) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, got.code, got.stdout, got.stderr)
		}
	}
	status := func(name string, args ...string) {
		t.Helper()
		got := run(t, env, append([]string{"status"}, args...)...)
		if got.code != ExitOK || got.stderr != "" {
			t.Errorf("status: exit %d, stderr %q", got.code, got.stderr)
		}
		golden(t, name, passing.ReplaceAllString(got.stdout, "…"))
	}

	status("status")
	expect(ExitUsage, "pause", "", "--comment is required")
	expect(ExitFailed, "resume|--comment|x", "", "group orderprojector is not paused")
	expect(ExitOK, "pause|--comment|disk full|--actor|ann", "group orderprojector is paused\n", "")
	expect(ExitFailed, "pause|--comment|me too", "", "consumption is paused by ann")
	status("status-paused")
	exec(t, dsn, `UPDATE consumption_control SET breaker_opened_at = '2026-01-02T00:00:00Z', breaker_reason = 'illegal', breaker_letters = 100,
		breaker_orders = 100, breaker_events = 120, paused_at = NULL, paused_by = NULL, pause_comment = NULL`)
	status("status-breaker")
	expect(ExitOK, "resume|--comment|fixed", "the breaker of group orderprojector is closed: it was open …\n", "")
	expect(ExitOK, "pause|--comment|typo|--group|orderprojecter", "group orderprojecter is paused\n", "is --group right?")
}

func TestStatusWithoutKafka(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	got := run(t, map[string]string{"DATABASE_URL": dsn}, "status", "-o", "json")
	var view struct {
		Consumption struct{ State string }
		Partitions  []any
		KafkaError  string `json:"kafka_error"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &view); err != nil || got.code != ExitOK {
		t.Fatal(err, got)
	}
	if view.Consumption.State != "running" || view.Partitions == nil || !strings.Contains(view.KafkaError, "kafka-bootstrap-servers") ||
		!strings.Contains(got.stderr, "Kafka's side is left out") {
		t.Errorf("status %+v, stderr %q", view, got.stderr)
	}
}
