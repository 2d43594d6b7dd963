package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/loyalty"
	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// noLog has no older records.
type noLog struct{}

func (noLog) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return nil
}

// moody is an effect that fails, or panics, for some orders.
type moody struct {
	loyalty.Effect
	mood  func(orderID string) error
	tried *atomic.Int64
}

func (m moody) Apply(ctx context.Context, tx loyalty.Tx, events []*effects.Event) ([]effects.Verdict, error) {
	var good []*effects.Event
	verdicts := make([]effects.Verdict, len(events))
	var at []int
	for i, e := range events {
		if err := m.mood(e.OrderID); err != nil {
			m.tried.Add(1)
			verdicts[i].Err = err
			continue
		}
		good, at = append(good, e), append(at, i)
	}
	applied, err := m.Effect.Apply(ctx, tx, good)
	for i, v := range applied {
		verdicts[at[i]] = v
	}
	return verdicts, err
}

type effectWorld struct {
	t        *testing.T
	pool     *pgxpool.Pool
	consumer *effects.Consumer[loyalty.Tx]
	handler  projection.PartitionHandler
	next     int64
}

var testLog = projection.TopicPartition{Topic: "orders.events", TopicID: projection.TopicID{1}}

func newEffectWorld(t *testing.T, effect effects.Effect[loyalty.Tx]) *effectWorld {
	t.Helper()
	store, pool := openStore(t)
	return newEffectWorldOn(t, effect, store, pool)
}

func newEffectWorldOn(t *testing.T, effect effects.Effect[loyalty.Tx], store *pgstore.Store, pool *pgxpool.Pool) *effectWorld {
	t.Helper()
	consumer, err := effects.New(effects.Config[loyalty.Tx]{
		Group: "side", Effect: effect, Store: pgstore.LoyaltyStore{Store: store}, Older: noLog{},
		Held: projection.HeldPolicy{Interval: time.Millisecond, Base: time.Nanosecond, Cap: time.Nanosecond, MinAge: time.Nanosecond}, RetryBase: time.Millisecond, RetryCap: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &effectWorld{t: t, pool: pool, consumer: consumer}
	w.handler, _, err = consumer.Assign(t.Context(), w.assignment(0))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *effectWorld) assignment(partition int32) projection.Assignment {
	log := testLog
	log.Partition = partition
	return projection.Assignment{TopicPartition: log, Group: "side", Committed: projection.NoOffset}
}

// payment is a record of the partition at the next offset.
func (w *effectWorld) payment(orderID string) projection.Record {
	r := paymentOf(orderID, orderID, "p-"+orderID, "7.00")
	r.Offset = w.next
	w.next++
	return r
}

func paymentOf(eventID, orderID, payment, amount string) projection.Record {
	return projection.Record{TopicPartition: testLog, Key: []byte(orderID), Timestamp: time.Unix(1, 0), Value: fmt.Appendf(nil,
		`{"event_id":%q,"order_id":%q,"type":"OrderPaid.v1","version":2,"occurred_at":"2026-01-01T10:00:00Z","data":{"payment_id":%q,"amount":{"amount":%q,"currency":"EUR"},"customer_id":"c"}}`,
		eventID, orderID, payment, amount)}
}

func (w *effectWorld) handle(records ...projection.Record) {
	w.t.Helper()
	if err := w.handler.Handle(w.t.Context(), records); err != nil {
		w.t.Fatal(err)
	}
}

func (w *effectWorld) ask(sql string) string {
	w.t.Helper()
	var answer string
	if err := w.pool.QueryRow(w.t.Context(), sql).Scan(&answer); err != nil {
		w.t.Fatal(err)
	}
	return answer
}

func (w *effectWorld) await(sql, want string) {
	w.t.Helper()
	testenv.Await(w.t, 30*time.Second, func() (bool, string) {
		got := w.ask(sql)
		return got == want, fmt.Sprintf("%s: %s, want %s", sql, got, want)
	})
}

// retrying runs the retries of held records until the end of the test.
func (w *effectWorld) retrying() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.consumer.RetryHeld(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

const heldCounts = `SELECT coalesce(string_agg(order_id || ' ' || counted, ',' ORDER BY id), '') FROM held_records`

// A record whose effect fails is held while others go on, and later records of its order wait behind it. The record heals by itself, or
// becomes a dead letter after sixteen failures.
func TestHeldRecords(t *testing.T) {
	t.Parallel()
	var healed atomic.Bool
	tried := &atomic.Int64{}
	w := newEffectWorld(t, moody{tried: tried, mood: func(orderID string) error {
		if orderID == "sick" && !healed.Load() || orderID == "hopeless" {
			return errors.New("nothing goes with " + orderID)
		}
		return nil
	}})
	w.handle(w.payment("sick"), w.payment("well"), w.payment("hopeless"))
	const accounts = `SELECT applied || ' ' || held || ' ' || next_offset FROM projection_watermarks`
	if got := w.ask(accounts); got != "1 2 3" {
		t.Errorf("applied, held and watermark: %s", got)
	}
	w.await(heldCounts, "sick 1,hopeless 1")
	second := paymentOf("sick-2", "sick", "p-sick-2", "7.00")
	second.Offset = w.next
	w.next++
	before := tried.Load()
	w.handle(second)
	if got := w.ask(accounts); got != "1 3 4" || tried.Load() != before {
		t.Errorf("a record behind a held one: applied, held and watermark %s, tried %d times", got, tried.Load()-before)
	}
	healed.Store(true)
	if _, err := w.pool.Exec(t.Context(), `UPDATE held_records SET due_at = now()`); err != nil {
		t.Fatal(err)
	}
	w.retrying()
	w.await(`SELECT count(*)::text FROM points_ledger WHERE order_id = 'sick'`, "2")
	w.await(heldCounts, "")
	if got := w.ask(`SELECT string_agg(order_id || ' ' || reason || ' ' || detail, ',') FROM dead_letters`); !strings.HasPrefix(got, "hopeless invalid it failed 16 times while others succeeded: nothing goes with hopeless") {
		t.Errorf("letter: %s", got)
	}
	if got := w.ask(`SELECT applied || ' ' || invalid || ' ' || held || ' ' || next_offset FROM projection_watermarks`); got != "3 1 0 4" {
		t.Errorf("applied, invalid, held and watermark: %s", got)
	}
}

// Where nothing else can be written either, it is an outage: nothing is held, and no failure counts.
func TestNothingIsHeldInAnOutage(t *testing.T) {
	t.Parallel()
	tried := &atomic.Int64{}
	var healed atomic.Bool
	w := newEffectWorld(t, moody{tried: tried, mood: func(string) error {
		if healed.Load() {
			return nil
		}
		return errors.New("nothing goes with anybody")
	}})
	done := make(chan error, 1)
	records := []projection.Record{w.payment("a"), w.payment("b")}
	go func() { done <- w.handler.Handle(t.Context(), records) }()
	testenv.Await(t, 30*time.Second, func() (bool, string) { return tried.Load() > 40, fmt.Sprintf("tried %d times", tried.Load()) })
	if got := w.ask(heldCounts); got != "" {
		t.Errorf("held in an outage: %s", got)
	}
	healed.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := w.ask(`SELECT applied || ' ' || held || ' ' || next_offset FROM projection_watermarks`); got != "2 0 2" {
		t.Errorf("applied, held and watermark: %s", got)
	}
}

// A panic of an effect is the fault of one record, and the others do not notice.
func TestPanicOfAnEffect(t *testing.T) {
	t.Parallel()
	w := newEffectWorld(t, moody{tried: &atomic.Int64{}, mood: func(orderID string) error {
		if orderID == "boom" {
			panic("ouch")
		}
		return nil
	}})
	w.handle(w.payment("a"), w.payment("b"), w.payment("boom"), w.payment("c"))
	if got := w.ask(`SELECT string_agg(order_id, ' ' ORDER BY order_id) FROM points_ledger`); got != "a b c" {
		t.Errorf("ledger: %s", got)
	}
	if got := w.ask(`SELECT string_agg(order_id || ': ' || detail, ',') FROM dead_letters`); got != "boom: panic in the effect: ouch" {
		t.Errorf("letters: %s", got)
	}
}

// sides deals with a batch on each of two partitions at the same time, again and again. Batch makes the records of a round and side.
func (w *effectWorld) sides(rounds int, batch func(round, side int) []projection.Record) {
	w.t.Helper()
	handlers := make([]projection.PartitionHandler, 2)
	for side := range handlers {
		var err error
		if handlers[side], _, err = w.consumer.Assign(w.t.Context(), w.assignment(int32(side+1))); err != nil {
			w.t.Fatal(err)
		}
	}
	offsets := make([]int64, 2)
	for round := range rounds {
		var both sync.WaitGroup
		for side, h := range handlers {
			records := batch(round, side)
			for i := range records {
				records[i].Partition, records[i].Offset = int32(side+1), offsets[side]
				offsets[side]++
			}
			both.Go(func() {
				if err := h.Handle(w.t.Context(), records); err != nil {
					w.t.Error(err)
				}
			})
		}
		both.Wait()
	}
}

func (w *effectWorld) expect(what, sql, want string) {
	w.t.Helper()
	if got := w.ask(sql); got != want {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// Members get the same events, the same payments under other event IDs, and payments of the same customers, at the same time
// and in opposite order: one effect each, no dead letter, and nobody waits for ever.
func TestConcurrentMembersOnTheSameEvents(t *testing.T) {
	t.Parallel()
	w := newEffectWorld(t, loyalty.Effect{})
	const rounds, size = 30, 20
	w.sides(rounds, func(round, side int) (records []projection.Record) {
		for i := range size {
			n := i
			if side == 1 {
				n = size - 1 - i
			}
			id := fmt.Sprintf("%d-%d", round, n)
			eventID := id
			if n%2 == 0 {
				eventID = fmt.Sprintf("%s-by-%d", id, side)
			}
			records = append(records, paymentOf(eventID, "o-"+id, "p-"+id, "7.00"))
		}
		return records
	})
	w.expect("entries and points", `SELECT count(*) || ' ' || sum(delta) FROM points_ledger`, fmt.Sprintf("%d %d", rounds*size, 7*rounds*size))
	w.expect("dead letters", `SELECT count(*)::text FROM dead_letters`, "0")
	w.expect("applied and duplicate", `SELECT sum(applied) || ' ' || sum(duplicate) FROM projection_watermarks`, fmt.Sprintf("%d %d", rounds*size, rounds*size))
}

// Members get parts of one order's payments at the same time. What a part earns depends on the others.
func TestConcurrentMembersOnOneOrder(t *testing.T) {
	t.Parallel()
	w := newEffectWorld(t, loyalty.Effect{})
	const rounds, size = 60, 3
	w.sides(rounds, func(round, side int) (records []projection.Record) {
		for i := range size {
			part := fmt.Sprintf("part-%d-%d-%d", round, side, i)
			records = append(records, paymentOf(part, "shared", part, "0.35"))
		}
		return records
	})
	const parts = 2 * rounds * size
	w.expect("entries and points", `SELECT count(*) || ' ' || sum(delta) FROM points_ledger`, fmt.Sprintf("%d %d", parts, parts*35/100))
}

// Members get payments of the same ID, of different orders, and events of the same ID, at the same time: one of the two is a conflict.
func TestConcurrentMembersInConflict(t *testing.T) {
	t.Parallel()
	w := newEffectWorld(t, loyalty.Effect{})
	const rounds = 200
	w.sides(rounds, func(round, side int) []projection.Record {
		order := fmt.Sprintf("o-%d-%d", round, side)
		if round%2 == 0 {
			return []projection.Record{paymentOf(order, order, fmt.Sprintf("p-%d", round), "1.00")}
		}
		return []projection.Record{paymentOf(fmt.Sprintf("same-%d", round), order, "p-"+order, "1.00")}
	})
	w.expect("entries", `SELECT count(*)::text FROM points_ledger`, fmt.Sprint(rounds))
	w.expect("conflicts", `SELECT count(*)::text FROM dead_letters WHERE reason = 'conflict'`, fmt.Sprint(rounds))
	w.expect("consumed events without their entry", `SELECT count(*)::text FROM consumed_events c
		WHERE NOT EXISTS (SELECT FROM points_ledger l WHERE l.event_id = c.event_id)`, "0")
}

// Two consumers in one group would each take the other's progress for its own: the second one is not let in.
func TestGroupBelongsToOneConsumer(t *testing.T) {
	t.Parallel()
	w := newEffectWorld(t, loyalty.Effect{})
	for name, group := range map[string]string{"that of another consumer": "side", "the projector's": "projector"} {
		if group == "projector" {
			if _, err := w.pool.Exec(t.Context(), `INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset)
				VALUES ('projector', 'orders.events', gen_random_uuid(), 0, 7)`); err != nil {
				t.Fatal(err)
			}
		}
		consumer, err := effects.New(effects.Config[loyalty.Tx]{Group: group, Effect: stranger{}, Store: pgstore.LoyaltyStore{Store: pgstore.New(w.pool)}, Older: noLog{}})
		if err != nil {
			t.Fatal(err)
		}
		a := w.assignment(0)
		a.Group = group
		_, _, err = consumer.Assign(t.Context(), a)
		var halt *projection.HaltError
		if !errors.As(err, &halt) || halt.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type stranger struct{ loyalty.Effect }

func (stranger) Name() string            { return "stranger" }
func (stranger) Wants(t order.Type) bool { return t == order.TypePaid }

// A letter is decided again by the consumer whose it is.
func TestRedriveOfAnEffect(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	w := newEffectWorld(t, moody{tried: &atomic.Int64{}, mood: func(string) error {
		if !well.Load() {
			panic("not yet")
		}
		return nil
	}})
	w.handle(w.payment("a"), w.payment("b"))
	redrive := func(execute bool, want string) {
		t.Helper()
		report, err := w.consumer.Redrive(t.Context(), projection.RedriveRequest{
			Selection: projection.LetterSelection{All: true}, Execute: execute, By: projection.By{Actor: "ann"}, MaxAttempts: 2,
		})
		if got := fmt.Sprintf("%d tried, %d redriven, %d refused, %d exhausted", report.Tried, report.Redriven, report.Refused, report.Exhausted); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	redrive(false, "2 tried, 0 redriven, 2 refused, 2 exhausted")
	well.Store(true)
	redrive(false, "2 tried, 2 redriven, 0 refused, 0 exhausted")
	if got := w.ask(`SELECT (SELECT count(*) FROM points_ledger) || ' ' || (SELECT count(*) FROM audit_log)`); got != "0 0" {
		t.Errorf("a dry run left %s", got)
	}
	redrive(true, "2 tried, 2 redriven, 0 refused, 0 exhausted")
	if got := w.ask(`SELECT (SELECT count(*) FROM points_ledger) || ' ' || (SELECT count(*) FROM audit_log) || ' ' || (SELECT count(*) FROM dead_letters WHERE status = 'redriven')`); got != "2 2 2" {
		t.Errorf("entries, audited actions and redriven letters: %s", got)
	}
	redrive(true, "0 tried, 0 redriven, 0 refused, 0 exhausted")
	_, err := w.consumer.Redrive(t.Context(), projection.RedriveRequest{Selection: projection.LetterSelection{IDs: []int64{1}}, By: projection.By{Actor: "ann"}})
	var missing *projection.NotFoundError
	if !errors.As(err, &missing) {
		t.Errorf("a letter that is closed: %v", err)
	}
}

// Behind a pooler that shares sessions the same statements work, without prepared ones.
func TestEffectsOnSharedSessions(t *testing.T) {
	t.Parallel()
	pool := openPool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe })
	store := pgstore.New(pool)
	failing := func(orderID string) error {
		if orderID == "sick" {
			return errors.New("no")
		}
		return nil
	}
	w := newEffectWorldOn(t, moody{tried: &atomic.Int64{}, mood: failing}, store, pool)
	first := w.payment("a")
	w.handle(first, w.payment("b"), w.payment("sick"))
	first.Offset = w.next
	w.next++
	w.handle(first, w.payment("c"))
	w.retrying()
	w.await(`SELECT coalesce((SELECT counted >= 2 FROM held_records), true)::text`, "true") // it may be a letter already
	w.expect("entries", `SELECT string_agg(order_id, ' ' ORDER BY order_id) FROM points_ledger`, "a b c")

	queue := pgstore.NotificationStore{Store: store}
	if err := queue.InTx(t.Context(), func(ctx context.Context, tx notifications.Tx) error {
		_, err := tx.AddNotifications(ctx, []notifications.Notification{{
			Message: notifications.Message{Key: "k", Body: "{}"}, EventID: "e", OrderID: "o", State: notification.Pending, TopicPartition: testLog,
		}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	claimed, err := queue.Claim(t.Context(), "w", 1, time.Minute)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	if mine, err := queue.Begin(t.Context(), claimed[0], time.Minute); err != nil || !mine {
		t.Errorf("begun: %t, %v", mine, err)
	}
	finish(t, queue, claimed[0], notifications.Result{State: notification.Sent, Status: 200}, notification.Sent)
}

// The database has lost what Kafka says was dealt with: of those events, notifications may have been sent. Of others, none has.
func TestNotificationsOfRepeatedEvents(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	written := map[string]bool{}
	consumer, err := effects.New(effects.Config[notifications.Tx]{
		Group: "side", Store: pgstore.NotificationStore{Store: store}, Older: noLog{},
		Effect: notifications.Effect{Written: func(ids []string) {
			for _, id := range ids {
				written[id] = true
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, start, err := consumer.Assign(t.Context(), projection.Assignment{TopicPartition: testLog, Group: "side", Committed: 2, LogEnd: 4})
	if err != nil || start.Offset != 0 {
		t.Fatalf("%+v, %v", start, err)
	}
	var records []projection.Record
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		r := paymentOf(name, "o-"+name, "p-"+name, "1.00")
		r.Offset = int64(i)
		records = append(records, r)
	}
	if err := handler.Handle(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(event_id || ' ' || state, ', ' ORDER BY event_id) FROM notifications`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != "a unknown, b unknown, c pending, d pending, e pending" {
		t.Error(got)
	}
	if len(written) != 1 || !written["e"] {
		t.Errorf("%v were written of events that nobody can have dealt with", written)
	}

	// This process has seen them dealt with, whatever the database says later.
	if _, err := pool.Exec(t.Context(), `TRUNCATE notifications, consumed_events, projection_watermarks`); err != nil {
		t.Fatal(err)
	}
	var rewind *projection.RewindError
	if err := handler.Check(t.Context()); !errors.As(err, &rewind) {
		t.Fatalf("a database that lost everything: %v", err)
	}
	handler, _, err = consumer.Assign(t.Context(), projection.Assignment{TopicPartition: testLog, Group: "side", Committed: projection.NoOffset, LogEnd: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := handler.Handle(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(DISTINCT state, ', ') FROM notifications`).Scan(&got); err != nil || got != "unknown" {
		t.Errorf("%s, %v", got, err)
	}
}

// A process is assigned a partition whose events another process has dealt with. The database loses everything before the process
// takes a record. The process has seen the watermark at the assignment, and asks about the notifications instead of sending them again.
func TestNotificationsAfterAnAssignmentThatSawMore(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	process := func() *effects.Consumer[notifications.Tx] {
		consumer, err := effects.New(effects.Config[notifications.Tx]{
			Group: "side", Store: pgstore.NotificationStore{Store: store}, Older: noLog{}, Effect: notifications.Effect{},
		})
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	assign := func(c *effects.Consumer[notifications.Tx]) projection.PartitionHandler {
		handler, _, err := c.Assign(t.Context(), projection.Assignment{TopicPartition: testLog, Group: "side", Committed: projection.NoOffset})
		if err != nil {
			t.Fatal(err)
		}
		return handler
	}
	payment := paymentOf("a", "o-a", "p-a", "1.00")
	payment.Offset = 0
	if err := assign(process()).Handle(t.Context(), []projection.Record{payment}); err != nil {
		t.Fatal(err)
	}
	second := process()
	handler := assign(second)
	if _, err := pool.Exec(t.Context(), `TRUNCATE notifications, consumed_events, projection_watermarks`); err != nil {
		t.Fatal(err)
	}
	var rewind *projection.RewindError
	if err := handler.Check(t.Context()); !errors.As(err, &rewind) {
		t.Fatalf("a database that lost everything: %v", err)
	}
	if err := assign(second).Handle(t.Context(), []projection.Record{payment}); err != nil {
		t.Fatal(err)
	}
	if got := question(t, pool, `SELECT string_agg(event_id || ' ' || state, ', ') FROM notifications`); got != "a unknown" {
		t.Errorf("notifications: %s", got)
	}
}
