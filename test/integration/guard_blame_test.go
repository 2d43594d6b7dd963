//go:build unix

package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// One poll of 100 events with one that the database refuses and one that is a
// bomb for the decoder: those two are letters, the three behind the first
// wait, and the other 95 apply (B16).
func TestOneBadRecordDoesNotPoisonThePoll(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.exec(`ALTER TABLE order_rows ADD CONSTRAINT no_beast CHECK (total_minor <> 666)`)
	beast := func(version int64, typ, data string) *kgo.Record {
		return record("beast", event("beast", version, typ, data))
	}
	var records []*kgo.Record
	for i := range 100 {
		id := fmt.Sprintf("o-%03d", i)
		switch i {
		case 37:
			records = append(records, beast(1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"6.66","currency":"EUR"}}`))
		case 60:
			records = append(records, record(id, event(id, 1, "OrderCreated.v1", strings.Repeat("[", 100_000))))
		case 45, 70, 99:
			records = append(records, map[int]*kgo.Record{45: beast(2, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":"6.66","currency":"EUR"}}`),
				70: packed("beast", 3), 99: shipped("beast", 4)}[i])
		default:
			records = append(records, created(id))
		}
	}
	s.produce(records...) // all there before the program polls
	p := s.start()
	s.awaitDrained()

	s.compare(s.foldWithout(records[37]))
	counts := map[string]int64{}
	for _, outcome := range projection.Outcomes() {
		if n := s.counted(outcome.String()); n > 0 {
			counts[outcome.String()] = n
		}
	}
	if fmt.Sprint(counts) != "map[applied:95 invalid:2 parked:3]" {
		t.Errorf("outcomes: %v", counts)
	}
	s.sampler.Sample(t.Context())
	if at := s.sampler.Latest()[0]; at != 100 {
		t.Errorf("offset %d is committed, wanted 100", at)
	}
	letter := s.letterAt(0, 37)
	if letter.reason != "invalid" || !letter.blocks || !strings.Contains(letter.detail, "no_beast") || !strings.HasPrefix(letter.detail, "the database refuses it: ") {
		t.Errorf("the letter of the refused record: %+v", letter)
	}
	if letter := s.letterAt(0, 60); !strings.Contains(letter.detail, "exceeded max depth") || letter.blocks {
		t.Errorf("the letter of the bomb: %s", letter.detail)
	}
	if got := metric(t, p.Registry(), "orderprojector_blamed_records_total"); got != 1 {
		t.Errorf("%v records were blamed, wanted 1", got)
	}
	if status, body := p.get("/healthz/consumption"); status != 200 {
		t.Errorf("consumption is not healthy: %d %s", status, body)
	}

	// Sent once more, when the database takes it, it frees what waits behind it.
	s.exec(`ALTER TABLE order_rows DROP CONSTRAINT no_beast`)
	s.produce(beast(1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"6.66","currency":"EUR"}}`))
	s.awaitDrained()
	s.compare(s.foldWithout(records[37]))
	if got := ask[string](s, `SELECT format('%s %s %s', version, state, projection_status) FROM orders WHERE order_id = 'beast'`); got != "4 shipped ok" {
		t.Errorf("the order went on to %q", got)
	}
	if letter := s.letterAt(0, 37); letter.status != "superseded" {
		t.Errorf("the letter of the refused record is %s", letter.status)
	}
}

// foldWithout folds the topic as if one event were invalid, although its order
// and version are known: as it is when the database or a decoder refuses it.
func (s *stage) foldWithout(refused ...*kgo.Record) *reference.Result {
	s.t.Helper()
	return s.foldChanged(func(value []byte) []byte {
		return bytes.Replace(value, []byte(`"occurred_at":"2026`), []byte(`"occurred_at":"1926`), 1)
	}, refused...)
}

// foldChanged folds the topic with other values for some of its records.
func (s *stage) foldChanged(change func(value []byte) []byte, changed ...*kgo.Record) *reference.Result {
	s.t.Helper()
	records := s.read()
	found := 0
	for i := range records {
		for _, c := range changed {
			if records[i].Partition == c.Partition && records[i].Offset == c.Offset {
				records[i].Value = change(records[i].Value)
				found++
			}
		}
	}
	if found != len(changed) {
		s.t.Fatalf("%d of %d records were found in the topic", found, len(changed))
	}
	return s.foldOf(records)
}

// A parked event that the database refuses once its turn has come is to blame
// itself: the event that released it applies.
func TestAReleasedEventIsBlamedItself(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.exec(`ALTER TABLE order_rows ADD CONSTRAINT no_beast CHECK (total_minor <> 666)`)
	s.start()
	beast := amended("o-1", 3, "6.66")
	s.produce(created("o-1"), beast, record("o-1", event("o-1", 4, "OrderCancelled.v1", `{"reason":""}`)), created("o-2"))
	s.awaitDrained()
	s.produce(amended("o-1", 2, "2.00"), amended("o-2", 2, "2.00"))
	s.awaitDrained()
	// The sweep takes it up.
	s.awaitSQL(`SELECT EXISTS (SELECT FROM dead_letters WHERE order_id = 'o-1' AND version = 3)`)
	s.compare(s.foldWithoutReleased(beast))
	if letter := s.letterAt(0, beast.Offset); !strings.Contains(letter.detail, "no_beast") || !letter.blocks || letter.status != "open" {
		t.Errorf("the letter: %+v", letter)
	}
	if got := ask[string](s, `SELECT format('%s %s %s', version, total_minor, projection_status) FROM orders WHERE order_id = 'o-1'`); got != "2 200 blocked" {
		t.Errorf("the order is %q", got)
	}
	s.produce(amended("o-1", 3, "3.00"))
	s.awaitDrained()
	s.compare(s.foldWithoutReleased(beast))
	if got := ask[string](s, `SELECT format('%s %s %s', version, total_minor, projection_status) FROM orders WHERE order_id = 'o-1'`); got != "4 300 ok" {
		t.Errorf("the order went on to %q", got)
	}
}

// foldWithoutReleased is foldWithout for an event that parked first.
func (s *stage) foldWithoutReleased(refused *kgo.Record) *reference.Result {
	s.t.Helper()
	result := s.foldChanged(func(value []byte) []byte { // parks, and is refused when its turn comes
		return bytes.Replace(value, []byte(`"type":"Order`), []byte(`"type":"Unknown`), 1)
	}, refused)
	for i := range result.DeadLetters {
		if l := &result.DeadLetters[i]; l.Log.Partition == refused.Partition && l.Offset == refused.Offset {
			l.Reason = projection.Invalid
		}
	}
	return result
}

// touchyDecoder panics over values with a trigger in them.
type touchyDecoder struct{ projection.Decoder }

func (d touchyDecoder) Decode(r *projection.Record) (projection.Envelope, error) {
	if bytes.Contains(r.Value, []byte("trigger")) {
		var nothing []int
		_ = nothing[len(r.Value)]
	}
	return d.Decoder.Decode(r)
}

// A decoder that panics loses one record to the letters, not the program.
func TestAPanicIsOneRecordsFault(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	_, registry := s.startConsumer(touchyDecoder{projection.JSONDecoder{}})
	bad := record("o-1", event("o-1", 2, "OrderAmended.v1", `{"total":{"amount":"2.00","currency":"EUR"},"note":"trigger"}`))
	s.produce(created("o-1"), created("o-2"), bad, amended("o-1", 3, "3.00"), amended("o-2", 2, "2.00"))
	s.awaitDrained()
	s.compare(s.foldWithout(bad))
	letter := s.letterAt(0, bad.Offset)
	if letter.reason != "invalid" || !strings.HasPrefix(letter.detail, "panic in the decoder: ") || !letter.blocks {
		t.Errorf("the letter: %+v", letter)
	}
	s.produce(amended("o-1", 2, "2.50"))
	s.awaitDrained()
	s.compare(s.foldWithout(bad))
	if got := metric(t, registry, "orderprojector_events_total", "outcome=applied"); got != 4 {
		t.Errorf("%v events applied at once, wanted 4", got)
	}
}

// startConsumer runs the consuming part of the program with what cannot be configured, until the end of the test.
func (s *stage) startConsumer(decoder projection.Decoder, changes ...func(*kafkaio.ConsumerConfig)) (*kafkaio.Consumer, prometheus.Gatherer) {
	s.t.Helper()
	cfg := s.config()
	logger := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	registry := prometheus.NewRegistry()
	pool, err := app.OpenPool(s.t.Context(), cfg.Database, app.WritePool, 4)
	must(s.t, err)
	older, err := kafkaio.NewRecordReader(app.KafkaClient(cfg.Kafka), logger)
	must(s.t, err)
	projector, err := projection.NewProjector(projection.ProjectorConfig{
		Group: s.group, Store: pgstore.New(pool), Decoder: decoder, Older: older, Logger: logger, Registerer: registry,
	})
	must(s.t, err)
	consumerConfig := kafkaio.ConsumerConfig{Group: s.group, Topic: s.topic}
	for _, change := range changes {
		change(&consumerConfig)
	}
	consumer, err := kafkaio.NewConsumer(app.KafkaClient(cfg.Kafka), consumerConfig, projector, logger, registry)
	must(s.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := consumer.Run(ctx); err != nil {
			s.t.Errorf("the consumer ended with: %v", err)
		}
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
		older.Close()
		pool.Close()
	})
	return consumer, registry
}
