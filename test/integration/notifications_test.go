//go:build unix

package integration_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// webhookTimeout is short, so that what hangs is given up soon.
const webhookTimeout = 400 * time.Millisecond

const canary = "whsec-canary-0b5f"

// notificationStage is a consumerStage with a receiver.
type notificationStage struct {
	*consumerStage
	receiver *testenv.WebhookReceiver
}

func newNotificationStage(t testing.TB, config stageConfig, reply func(testenv.WebhookDelivery, int) testenv.WebhookReply) *notificationStage {
	t.Helper()
	s := &notificationStage{
		consumerStage: &consumerStage{stage: newStage(t, config), consumer: "notifications", build: app.NewNotifications},
		receiver:      testenv.StartWebhook(t, canary, reply),
	}
	s.useReceiver(true)
	return s
}

// useReceiver tells the program of the receiver, and whether it can be asked.
func (s *notificationStage) useReceiver(askable bool) {
	status := ""
	s.args = []string{"--webhook-url=" + s.receiver.URL(), "--webhook-timeout=" + webhookTimeout.String()}
	if askable {
		status = s.receiver.StatusURL()
		s.args = append(s.args, "--webhook-status-url="+status)
	}
	s.extraEnv = []string{"ORDERPROJECTOR_WEBHOOK_SECRET=" + canary}
	s.settings = []func(*config.Config){func(c *config.Config) {
		w := &c.Notifications.Webhook
		w.URL, w.StatusURL, w.Secret, w.Timeout = s.receiver.URL(), status, config.NewSecret(canary), webhookTimeout
	}}
}

// states returns the state of each notification.
func (s *notificationStage) states() map[string]string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT event_id, state FROM notifications`)
	must(s.t, err)
	all := map[string]string{}
	var id, state string
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error { all[id] = state; return nil })
	must(s.t, err)
	return all
}

func (s *notificationStage) awaitStates(want map[string]string) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		got := s.states()
		return maps.Equal(got, want), fmt.Sprintf("states %v, want %v", got, want)
	})
}

// awaitSettled waits until nothing is to be sent any more.
func (s *notificationStage) awaitSettled() {
	s.t.Helper()
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM notifications WHERE state IN ('pending', 'sending', 'unknown'))`)
}

// judgeNotifications compares, event by event, what is noted and what the receiver has done with the payments on the topic.
func (s *notificationStage) judgeNotifications() {
	s.t.Helper()
	oracle := &consumedOracle{wants: []order.Type{order.TypePaid}}
	oracle.take = func(*projection.Envelope) projection.Outcome { return projection.Applied }
	oracle.fold(s.read())
	s.judgeConsumed(oracle)
	states, acted := map[string]string{}, map[string]int{}
	for id := range oracle.consumed {
		states[id], acted[id] = "sent", 1
	}
	s.differ("states", states, s.states())
	s.differ("what the receiver has done", acted, s.receiver.Acted())
	for _, d := range s.receiver.Deliveries("") {
		if first := s.receiver.Deliveries(d.Key)[0]; first.Body != d.Body {
			s.t.Errorf("%s was sent as %s, and then as %s", d.Key, first.Body, d.Body)
			break
		}
	}
}

// Every way in which a receiver can answer, or not.
func TestNotificationsOutcomes(t *testing.T) {
	t.Parallel()
	first := map[string]testenv.WebhookReply{
		"cut": testenv.ReplyCut, "hang": testenv.ReplyHang, "late": testenv.ReplyActLate, "drop": testenv.ReplyDrop,
		"busy": testenv.ReplyBusy, "error": testenv.ReplyError,
	}
	s := newNotificationStage(t, stageConfig{}, func(d testenv.WebhookDelivery, attempt int) testenv.WebhookReply {
		name, _, _ := strings.Cut(d.Key, "-")
		if name == "bad" {
			return testenv.ReplyBadRequest
		}
		if reply, fails := first[name]; fails && attempt == 1 {
			return reply
		}
		return testenv.ReplyOK
	})
	p := s.spawn()
	awaitOwned(t, p, 1) // the events below are new, so that they are sent without asking
	var records []*kgo.Record
	want := map[string]string{"ok-e2": "sent", "bad-e2": "failed"}
	for _, name := range []string{"ok", "cut", "hang", "late", "drop", "busy", "error", "bad"} {
		records = append(records, createdBy(name, "c-1"), paidWith(name, 2, "p-"+name, "19.99", "EUR", ""))
		want[name+"-e2"] = "sent"
	}
	want["bad-e2"] = "failed"
	// An event ID that no header can carry; a repeat; another event with the same ID.
	odd := "ü/ \"\n?&"
	oddEvent := record("odd", eventWithID("ID", "odd", 2, "OrderPaid.v1", paying("p-odd", "1", "JPY", "c-1")))
	oddEvent.Value = []byte(strings.Replace(string(oddEvent.Value), `"ID"`, fmt.Sprintf("%q", odd), 1))
	want[odd] = "sent"
	records = append(records, oddEvent, paidWith("ok", 2, "p-ok", "19.99", "EUR", ""),
		record("other", eventWithID("ok-e2", "other", 2, "OrderPaid.v1", paying("p-x", "1.00", "EUR", ""))))
	s.produce(records...)
	s.awaitDrained() // no offset waits for the receiver
	s.awaitStates(want)
	for key, n := range s.receiver.Acted() {
		if n != 1 {
			t.Errorf("the receiver has acted %d times on %s", n, key)
		}
	}
	if got := len(s.receiver.Acted()); got != len(want)-1 {
		t.Errorf("the receiver has acted on %d keys, want %d", got, len(want)-1)
	}
	if n := s.receiver.Questions("ok-e2"); n != 0 {
		t.Errorf("a new event was asked about %d times", n)
	}
	for _, name := range []string{"cut", "hang", "late", "drop"} {
		if s.receiver.Questions(name+"-e2") == 0 {
			t.Errorf("%s: the receiver was not asked", name)
		}
	}
	for name, attempts := range map[string]int{"cut": 1, "hang": 1, "late": 1, "drop": 2, "busy": 2, "error": 2, "bad": 1} {
		deliveries := s.receiver.Deliveries(name + "-e2")
		if len(deliveries) != attempts {
			t.Errorf("%s: %d deliveries, want %d", name, len(deliveries), attempts)
		}
		if got := ask[int](s.stage, `SELECT attempts FROM notifications WHERE event_id = $1`, name+"-e2"); got != attempts {
			t.Errorf("%s: %d attempts are noted, want %d", name, got, attempts)
		}
		if name == "busy" && len(deliveries) == 2 && deliveries[1].At.Sub(deliveries[0].At) < time.Second {
			t.Errorf("Retry-After was not honoured: %v", deliveries[1].At.Sub(deliveries[0].At))
		}
	}
	if n := ask[int64](s.stage, `SELECT count(*) FROM dead_letters WHERE reason = 'conflict' AND consumer_group = $1`, s.group); n != 1 {
		t.Errorf("%d conflicts, want the event ID of another order", n)
	}

	// The operator's side.
	code, stdout, stderr := s.command("notifications", "list", "--state=failed", "-o", "json")
	if code != 0 || !strings.Contains(stdout, `"bad-e2"`) || !strings.Contains(stdout, `no such customer`) || strings.Count(stdout, `"event_id"`) != 1 {
		t.Errorf("list: exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := s.command("notifications", "cancel", "bad-e2"); code != 2 || !strings.Contains(stderr, "--comment") {
		t.Errorf("cancel without a comment: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := s.command("notifications", "cancel", "nobody", "--comment=x"); code != 4 {
		t.Errorf("cancel of nothing: exit code %d, %s", code, stderr)
	}
	if code, stdout, stderr := s.command("notifications", "cancel", "bad-e2", "ok-e2", "--comment=moot", "--actor=ann"); code != 1 || !strings.Contains(stdout, "cancelled") {
		t.Errorf("cancel: exit code %d\n%s%s", code, stdout, stderr)
	}
	s.receiver.Behave(nil)
	if code, stdout, stderr := s.command("notifications", "retry", "--state=cancelled"); code != 0 {
		t.Errorf("retry: exit code %d\n%s%s", code, stdout, stderr)
	}
	want["bad-e2"] = "sent"
	s.awaitStates(want)
	if got := ask[string](s.stage, `SELECT string_agg(action || ' ' || target || ' ' || (after ->> 'state'), ', ' ORDER BY id) FROM audit_log`); got !=
		"notifications.cancel notification bad-e2 cancelled, notifications.retry notification bad-e2 pending" {
		t.Errorf("audit log: %s", got)
	}
	if out := p.Stderr() + p.Stdout(); strings.Contains(out, canary) {
		t.Error("the secret is in the log")
	}
}

// A receiver that cannot be asked and may act twice: what became of a cut call is for an operator to find out. One
// that acts once on each key gets it again.
func TestNotificationsReceiverThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	s := newNotificationStage(t, stageConfig{}, func(d testenv.WebhookDelivery, attempt int) testenv.WebhookReply {
		if attempt == 1 && strings.HasPrefix(d.Key, "cut") {
			return testenv.ReplyCut
		}
		return testenv.ReplyOK
	})
	s.useReceiver(false)
	p := s.start()
	s.produce(paidWith("cut-1", 2, "p-1", "1.00", "EUR", ""), paidWith("cut-2", 2, "p-2", "1.00", "EUR", ""), paidWith("fine", 2, "p-3", "1.00", "EUR", ""))
	s.awaitDrained()
	s.awaitSQL(`SELECT count(*) FILTER (WHERE state = 'unknown' AND due_at = 'infinity') = 2 AND count(*) FILTER (WHERE state = 'sent') = 1 FROM notifications`)
	if code, _, stderr := s.command("notifications", "cancel", "cut-1-e2", "--comment=it came through"); code != 0 {
		t.Error(stderr)
	}
	if code, _, stderr := s.command("notifications", "retry", "cut-2-e2", "--comment=it did not"); code != 0 {
		t.Error(stderr)
	}
	s.awaitStates(map[string]string{"cut-1-e2": "cancelled", "cut-2-e2": "sent", "fine-e2": "sent"})
	p.Stop()

	s.start(func(c *config.Config) { c.Notifications.Webhook.Idempotent = true })
	s.produce(paidWith("cut-4", 2, "p-4", "1.00", "EUR", ""))
	s.awaitDrained()
	s.awaitStates(map[string]string{"cut-1-e2": "cancelled", "cut-2-e2": "sent", "fine-e2": "sent", "cut-4-e2": "sent"})
	deliveries := s.receiver.Deliveries("cut-4-e2")
	if len(deliveries) != 2 || deliveries[0].Header.Get("Idempotency-Key") != deliveries[1].Header.Get("Idempotency-Key") || deliveries[0].Body != deliveries[1].Body {
		t.Errorf("%d deliveries", len(deliveries))
	}
}

// While the receiver is away nothing fails, and once it is back everything is sent within 15 seconds.
func TestNotificationsReceiverOutage(t *testing.T) {
	t.Parallel()
	away := func(testenv.WebhookDelivery, int) testenv.WebhookReply { return testenv.ReplyError }
	s := newNotificationStage(t, stageConfig{}, away)
	p := s.start()
	var records []*kgo.Record
	for i := range 300 {
		records = append(records, paidWith(fmt.Sprintf("o-%d", i), 2, fmt.Sprintf("p-%d", i), "1.00", "EUR", ""))
	}
	s.produce(records...)
	s.awaitDrained()
	s.receiver.Await(patience, func() bool { return len(s.receiver.Deliveries("")) > 8 })
	if n := len(s.receiver.Deliveries("")); n > 40 {
		t.Errorf("a receiver that is away got %d calls", n)
	}
	code, _, stderr := s.command("pause", "--group="+s.group, "--comment=they are away")
	if code != 0 {
		t.Error(stderr)
	}
	p.awaitHTTP("/healthz/consumption", 503, "they are away")
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM notifications WHERE claimed_by IS NOT NULL)`)
	calls := len(s.receiver.Deliveries(""))
	if code, stdout, _ := s.command("notifications", "list", "--state=pending", "--limit=3"); code != 0 || strings.Count(stdout, "pending") != 3 {
		t.Errorf("list: exit code %d\n%s", code, stdout)
	}
	if now := len(s.receiver.Deliveries("")); now != calls {
		t.Errorf("%d calls while the group is paused", now-calls)
	}
	s.receiver.Behave(nil)
	if code, _, stderr := s.command("resume", "--group="+s.group, "--comment=they are back"); code != 0 {
		t.Error(stderr)
	}
	back := time.Now()
	s.awaitSettled()
	took := time.Since(back)
	t.Logf("everything is sent %v after the receiver is back", took)
	if took > recovery {
		t.Errorf("everything is sent %v after the receiver is back", took)
	}
	s.judgeNotifications()
	if n := ask[int64](s.stage, `SELECT count(*) FROM notifications WHERE failures > 0`); n != 0 {
		t.Errorf("failures of an outage count, of %d notifications", n)
	}
}
