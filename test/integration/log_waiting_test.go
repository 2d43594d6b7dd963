//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// A producer leaves a transaction open, and plain events follow: health, metrics, log, status
// and offsets show tell of it, and what waits for the end of the log does not wait for it.
func TestOpenTransactionIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.TransactionalID(s.group), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(5*time.Minute))
	must(t, err)
	t.Cleanup(client.Close)
	s.produce(created("a"))
	p := s.spawn("--stall-limit=6s")
	s.awaitDrained()
	began := time.Now()
	must(t, client.BeginTransaction())
	open := created("open")
	open.Topic = s.topic
	must(t, client.ProduceSync(t.Context(), open).FirstErr())
	s.produce(created("b"), created("c"))

	awaitMetric(t, p, func(v float64) bool { return v == 3 }, "orderprojector_consumer_open_transaction_offsets")
	awaitMetric(t, p, func(v float64) bool { return v == 3 }, "orderprojector_consumer_lag_records")
	awaitStatus(t, p, "/healthz/consumption", 503)
	if waited := time.Since(began); waited < 6*time.Second {
		t.Errorf("health fails after %s", waited)
	}
	if _, health := get(p.HTTPAddr(), "/healthz/consumption"); !strings.Contains(health, "3 offsets wait behind a transaction that begins at offset 1") {
		t.Errorf("health says: %s", health)
	}
	if seconds, _ := metricOf(p, "orderprojector_consumer_open_transaction_seconds"); seconds < 6 || seconds > time.Since(began).Seconds() {
		t.Errorf("open for %v s, by the clock for %s", seconds, time.Since(began))
	}
	if seconds, _ := metricOf(p, "orderprojector_consumer_lag_seconds"); seconds < 5 || seconds > time.Since(began).Seconds()+1 {
		t.Errorf("the first record waits for %v s, by the clock for %s", seconds, time.Since(began))
	}
	p.AwaitOutput(patience, "records wait behind an open transaction")

	type transaction struct {
		Offset  int64     `json:"kafka_offset"`
		Offsets int64     `json:"offsets"`
		Since   time.Time `json:"since"`
	}
	is := func(what string, got transaction, lag int64) {
		t.Helper()
		if got.Offset != 1 || got.Offsets != 3 || lag != 3 || got.Since.Before(began.Add(-time.Second)) || got.Since.After(began.Add(patience)) {
			t.Errorf("%s: %+v, lag %d", what, got, lag)
		}
	}
	var status struct {
		Partitions []struct {
			LogEnd          int64       `json:"log_end"`
			LastStable      int64       `json:"last_stable"`
			Lag             int64       `json:"lag"`
			OpenTransaction transaction `json:"open_transaction"`
		}
	}
	decodeCommand(s, &status, "status", "-o", "json")
	is("status", status.Partitions[0].OpenTransaction, status.Partitions[0].Lag)
	if p := status.Partitions[0]; p.LogEnd != 4 || p.LastStable != 1 {
		t.Errorf("status: %+v", p)
	}
	var offsets []struct {
		Lag             int64       `json:"lag"`
		OpenTransaction transaction `json:"open_transaction"`
	}
	decodeCommand(s, &offsets, "offsets", "show", "-o", "json")
	is("offsets show", offsets[0].OpenTransaction, offsets[0].Lag)
	if _, out, _ := s.command("status"); !strings.Contains(out, s.topic+"-0: 3 offsets wait behind a transaction") {
		t.Errorf("status:\n%s", out)
	}

	// Everything is done that can be done: nobody waits for the transaction.
	s.awaitDrained()
	for _, args := range [][]string{{"replay", "--from-earliest"}, {"verify"}} {
		if code, out, said := s.command(args...); code != 0 {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, said)
		}
	}

	must(t, client.EndTransaction(t.Context(), kgo.TryAbort))
	s.awaitSQL(`SELECT count(*) = 3 FROM orders WHERE order_id IN ('a', 'b', 'c')`)
	s.awaitNoLag(&process{p.Process, t})
	awaitMetric(t, p, func(v float64) bool { return v == 0 }, "orderprojector_consumer_open_transaction_offsets")
	p.AwaitOutput(patience, "the transaction that held the partition back has ended")
	s.judge()
}

// decodeCommand runs a command that prints JSON.
func decodeCommand(s *stage, into any, args ...string) {
	s.t.Helper()
	code, out, said := s.command(args...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, said)
	}
	must(s.t, json.Unmarshal([]byte(out), into))
}

// The age of the oldest waiting record is that of the record, while the group is paused, too.
func TestAgeOfWhatWaitsWhilePaused(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	aged := func(age time.Duration, r *kgo.Record) *kgo.Record {
		r.Timestamp = time.Now().Add(-age)
		return r
	}
	p := s.start(func(c *config.Config) { c.StallLimit = 5 * time.Second })
	s.produce(aged(2*time.Hour, created("old")))
	s.awaitDrained()
	if code, _, said := s.command("pause", "--comment", "maintenance"); code != 0 {
		t.Fatal(said)
	}
	awaitStatus(t, p, "/healthz/consumption", 503)
	began := time.Now()
	s.produce(aged(13*time.Second, paid("old", 2)), on(1, aged(3*time.Hour, created("backlog"))))
	for partition, age := range map[int32]time.Duration{0: 13 * time.Second, 1: 3 * time.Hour} {
		label := fmt.Sprintf(`partition="%d"`, partition)
		awaitMetric(t, p, func(v float64) bool { return v == 1 }, "orderprojector_consumer_lag_records", label)
		got, _ := metricOf(p, "orderprojector_consumer_lag_seconds", label)
		if latest := age + time.Since(began); got < age.Seconds() || got > latest.Seconds()+1 {
			t.Errorf("partition %d: the record that waits is %v s old, not %s", partition, got, age)
		}
	}
	if code, _, said := s.command("resume", "--comment", "done"); code != 0 {
		t.Fatal(said)
	}
	s.awaitDrained()
	testenv.Await(t, patience, func() (bool, string) {
		seconds, ok := metricOf(p, "orderprojector_consumer_lag_seconds")
		return ok && seconds == 0, fmt.Sprintf("lag of %v s", seconds)
	})
	s.judge()
}
