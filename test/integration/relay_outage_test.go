//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/outbox/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// Of two relays one publishes. When it dies the other one takes over within seconds. When it is frozen, so that its connections
// stay, the database gives its place away; and when it wakes up, it finds that out, and repeats at most what it had in hand.
func TestRelayTakesOver(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2}).newShop()
	first, second := s.spawnRelay(), s.spawnRelay()
	stop := s.trade(seed, 3)
	pid := s.relayPID(0)
	if awaitActive(t, first, second) == 1 {
		first, second = second, first
	}
	second.AwaitOutput(patience, "standing by")
	awaitStatus(t, second, "/healthz/consumption", 200)

	killed := time.Now()
	first.Kill()
	pid = s.relayPID(pid)
	took := time.Since(killed)
	t.Logf("took over %v after a kill", took)
	if took > 10*time.Second {
		t.Error("that is too long")
	}
	third := s.spawnRelay()
	third.AwaitOutput(patience, "standing by")

	frozen := time.Now()
	second.Pause()
	pid = s.relayPID(pid)
	took = time.Since(frozen)
	t.Logf("took over %v after a freeze", took)
	if took > pgstore.SessionIdleLimit+10*time.Second {
		t.Error("that is too long")
	}
	awaitActive(t, third)
	published := s.published()
	testenv.Await(t, patience, func() (bool, string) { n := s.published(); return n > published, fmt.Sprint(n, " published") })
	second.Resume()
	testenv.Await(t, patience, func() (bool, string) {
		v, _ := metricOf(second, "orderprojector_outbox_relay_active")
		return v == 0, "the frozen relay still thinks that it is the one"
	})
	stop()
	s.awaitPublished()
	t.Logf("%d events, %d repeats", s.events(), s.judgeTopic())
	if code := third.Stop(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if now := s.relayPID(pid); now == pid {
		t.Error("nobody took over after an orderly stop")
	}
	s.start() // repeats do no harm
	s.awaitDrained()
	s.judge()
}

// A broker that is away is not poison: messages wait, nothing is blocked, and all of it comes when it is back.
func TestRelayOutlastsTheBroker(t *testing.T) {
	t.Parallel()
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{})
	s := newStage(t, stageConfig{Brokers: kafka.Brokers(), Partitions: 2}).newShop()
	p := s.startRelay(func(c *config.Config) { c.StallLimit = time.Second })
	for i := range 20 {
		s.append(fmt.Sprintf("o-%d", i), 1, createdFor("c"))
	}
	s.awaitPublished()
	kafka.Kill()
	for version := int64(2); version <= 4; version++ {
		for i := range 20 {
			s.append(fmt.Sprintf("o-%d", i), version, order.Amended{Total: *euros(version)})
		}
	}
	awaitMetric(t, p, func(n float64) bool { return n > 0 }, "orderprojector_outbox_failures_total", `class="broker"`)
	awaitStatus(t, p, "/healthz/consumption", 503)
	if status, body := get(p.HTTPAddr(), "/livez"); status != 200 {
		t.Errorf("/livez: %d %s", status, body)
	}
	must(t, kafka.Start(context.WithoutCancel(t.Context())))
	healed := time.Now()
	s.awaitPublished()
	t.Logf("all published %v after the broker was back", time.Since(healed))
	awaitStatus(t, p, "/healthz/consumption", 200)
	s.judgeTopic()
	if n := ask[int64](s.stage, `SELECT count(*) FROM outbox_failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
}

// A topic that is missing, or made anew, needs no restart and blames no message.
func TestRelayWaitsForItsTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Forgiving: true}).newShop()
	s.topic += "-2"
	p := s.startRelay()
	s.append("o-1", 1, createdFor("c"))
	awaitBody(t, p, "/healthz/consumption", 503, s.topic)
	awaitMetric(t, p, func(n float64) bool { return n > 0 }, "orderprojector_outbox_failures_total", `class="topic_missing"`)
	testenv.CreateTopic(t, s.brokers, s.topic, 3)
	s.awaitPublished()
	s.judgeTopic()
	awaitStatus(t, p, "/healthz/consumption", 200)

	deleted, err := s.admin.DeleteTopics(t.Context(), s.topic)
	must(t, err)
	must(t, deleted[s.topic].Err)
	s.append("o-1", 2, order.Amended{Total: *euros(1)})
	s.append("o-2", 1, createdFor("c"))
	awaitBody(t, p, "/healthz/consumption", 503, s.topic)
	testenv.CreateTopic(t, s.brokers, s.topic, 1)
	s.awaitPublished()
	delete(s.done["o-1"], 1) // went with the old topic
	s.judgeTopic()
	if n := ask[int64](s.stage, `SELECT count(*) FROM outbox_failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
}
