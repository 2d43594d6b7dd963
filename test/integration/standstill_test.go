//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// awaitHealth waits until the health of a process's consumption has that status and names text.
func awaitHealth(t testing.TB, p instance, status int, text string) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		got, body := get(p.HTTPAddr(), "/healthz/consumption")
		return got == status && strings.Contains(body, text), fmt.Sprintf("%d %s", got, body)
	})
}

// statusSays runs "status" and looks for text.
func (s *stage) statusSays(text string) {
	s.t.Helper()
	if code, out, errs := s.command("status"); code != 0 || !strings.Contains(out, text) {
		s.t.Errorf("status does not say %q: exit %d\n%s%s", text, code, out, errs)
	}
}

// Another program joins the consumer group and gets a partition, which then is read by no member of this one.
func TestAnotherProgramInTheGroupIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Forgiving: true})
	p := s.spawn("--stall-limit=3s")
	awaitOwned(t, p, 2)
	s.awaitSQL(`SELECT EXISTS (SELECT FROM group_members WHERE consumer_group = $1 AND kafka_topic = $2 AND partitions = '{0,1}' AND process_id = $3)`,
		s.group, s.topic, p.Pid())
	awaitHealth(t, p, 200, "ok")

	other, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit())
	must(t, err)
	t.Cleanup(other.Close)
	awaitOwned(t, p, 1)
	awaitHealth(t, p, 503, "another program may be in the consumer group")
	awaitMetric(t, p, func(n float64) bool { return n == 1 }, "orderprojector_partitions_without_member")
	s.statusSays("no running member of this program in group " + s.group + " has read partition")
	p.AwaitOutput(patience, "another program may be in the consumer group")

	other.Close()
	awaitOwned(t, p, 2)
	awaitHealth(t, p, 200, "ok")
	awaitMetric(t, p, func(n float64) bool { return n == 0 }, "orderprojector_partitions_without_member")
	p.Stop(patience)
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM group_members WHERE consumer_group = $1)`, s.group)
	s.statusSays("no member of this program runs in group " + s.group)
}

// A member that was killed leaves its row, which counts for half a minute.
func TestAMemberThatVanishesIsNotAlive(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.spawn()
	awaitOwned(t, p, 1)
	s.awaitSQL(`SELECT EXISTS (SELECT FROM group_members WHERE consumer_group = $1 AND partitions = '{0}')`, s.group)
	p.Kill()
	s.statusSays(fmt.Sprintf("process %d on", p.Pid()))
	s.exec(`UPDATE group_members SET seen_at = now() - interval '31 seconds' WHERE consumer_group = $1`, s.group)
	s.statusSays("none runs")
	s.exec(`UPDATE group_members SET seen_at = now() - interval '25 hours' WHERE consumer_group = $1`, s.group)
	heir := s.spawn()
	s.awaitSQL(`SELECT count(*) = 1 AND bool_and(process_id = $2) FROM group_members WHERE consumer_group = $1`, s.group, heir.Pid())
}

// A COMMIT hangs because synchronous_standby_names names a standby that is dead.
func TestACommitThatWaitsForAStandbyIsNamed(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, embedded.PostgresConfig{})
	testenv.Migrate(t, server.DSN())
	s := newStage(t, stageConfig{DSN: server.DSN()})
	p := s.spawn()
	s.produce(created("o-1"))
	s.awaitDrained()
	awaitHealth(t, p, 200, "ok")

	s.exec(`ALTER SYSTEM SET synchronous_standby_names = 'dead'`)
	s.exec(`SELECT pg_reload_conf()`)
	s.produce(amended("o-1", 2, "2.00"), amended("o-1", 3, "3.00"))
	s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	testenv.Await(t, patience, func() (bool, string) {
		_, out, _ := s.command("status")
		return strings.Contains(out, "COMMIT waits for a synchronous standby"), out
	})
	s.produce(amended("o-1", 4, "4.00"))
	awaitHealth(t, p, 503, "COMMIT waits for a synchronous standby")
	p.AwaitOutput(patience, "COMMIT waits for a synchronous standby")
	// Heartbeats do not wait for the standby.
	s.awaitSQL(`SELECT EXISTS (SELECT FROM group_members WHERE seen_at > now() - interval '3 seconds')`)

	s.exec(`ALTER SYSTEM RESET synchronous_standby_names`)
	s.exec(`SELECT pg_reload_conf()`)
	s.awaitDrained()
	awaitHealth(t, p, 200, "ok")
	s.judge()
}

// A report holds a snapshot open.
func TestASnapshotThatHoldsVacuumBackIsAMetric(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.start()
	conn, err := pgx.Connect(t.Context(), s.dsn)
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	began := time.Now()
	report, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = report.Exec(t.Context(), `SELECT count(*) FROM order_rows`)
	must(t, err)
	awaitGauge(t, p, func(seconds float64) bool { return seconds > 2 && seconds <= time.Since(began).Seconds()+1 }, "orderprojector_database_oldest_snapshot_seconds")
	must(t, report.Rollback(t.Context()))
	awaitGauge(t, p, func(seconds float64) bool { return seconds < 2 }, "orderprojector_database_oldest_snapshot_seconds")
}

// Records wait, one record is held, and no member runs: status tells of each.
func TestStatusTellsWhatStandsStillWithoutMembers(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Forgiving: true})
	p := s.start()
	s.produce(created("o-1"))
	s.awaitDrained()
	p.Stop()
	s.produce(amended("o-1", 2, "2.00"), amended("o-1", 3, "3.00"))
	s.exec(`UPDATE projection_watermarks SET updated_at = now() - interval '1 hour' WHERE consumer_group = $1`, s.group)
	s.exec(`INSERT INTO held_records (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type, headers, order_id, event_id, failures, cause)
		SELECT $1, $2, topic_id, 0, 0, now(), 0, '[]', 'o-sick', 'e-1', 7, 'the trigger refuses it' FROM projection_watermarks WHERE consumer_group = $1`, s.group, s.topic)
	code, out, errs := s.command("status")
	for _, want := range []string{
		"no member of this program runs in group " + s.group,
		s.topic + "-0: 2 records wait from offset 1 on, and none was made durable for 1h0m",
		"order o-sick: the record at offset 0 of " + s.topic + "-0 has failed 7 times since", "the trigger refuses it",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q", want)
		}
	}
	if t.Failed() {
		t.Logf("exit %d\n%s%s", code, out, errs)
	}
}
