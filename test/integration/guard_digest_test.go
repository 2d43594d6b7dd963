//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// rewritten is the event created(id) as another producer would write it.
func rewritten(id string) *kgo.Record {
	return record(id, fmt.Sprintf(` { "data":{"total":{"currency":"EUR","amount":"19.99"},"customer_id":"c-\u0031"},
		"version":1, "occurred_at":"2026-01-01T11:00:01.000+01:00","type":"OrderCreated","order_id":%q ,"event_id":"%s-e1"} `, id, id))
}

// The same event in other bytes is a duplicate; other content under the same
// name is a conflict, whose letter says where the older record is.
func TestOtherBytesAreComparedAsEvents(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	p := s.start()
	withNote := func(note string) *kgo.Record {
		return record("o-2", event("o-2", 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":1.1,"currency":"EUR"},"note":`+note+`}`))
	}
	s.produce(on(1, created("padding")), created("o-1"), withNote(`{"a":1.10,"b":[1e2,-0.0,9007199254740993]}`))
	s.awaitDrained()

	conflicts := map[*kgo.Record]string{}
	conflict := func(r *kgo.Record, detail string) *kgo.Record { conflicts[r] = detail; return r }
	originals := `same event ID and version as the record at partition 0 offset `
	send := func() {
		s.produce(
			rewritten("o-1"),
			withNote(`{"b":[100,0,9007199254740993.0],"a":1.1}`),
			conflict(withNote(`{"b":[100,0,9007199254740992],"a":1.1}`), originals+"1, but another content"),
			conflict(withNote(`{"b":[0,100,9007199254740993],"a":1.1}`), originals+"1, but another content"),
			conflict(withNote(`{"b":[100,0,9007199254740993],"a":"1.1"}`), originals+"1, but another content"),
			conflict(record("o-1", strings.Replace(string(created("o-1").Value), "19.99", "19.98", 1)), originals+"0, but another content"),
			conflict(record("o-1", strings.Replace(string(created("o-1").Value), ":01Z", ":01.000001Z", 1)), originals+"0, but another content"),
			conflict(record("o-1", strings.Replace(string(created("o-1").Value), ".v1", ".v3", 1)), originals+"0, but another content"),
			conflict(record("o-1", eventWithID("else", "o-1", 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"}}`)),
				`version 1 is event "o-1-e1" in the ledger, and event "else" here`),
			conflict(record("o-1", eventWithID("o-1-e1", "o-1", 2, "OrderAmended.v1", `{"total":{"amount":"1","currency":"EUR"}}`)),
				`event ID "o-1-e1" is used by version 1 of this order, and now by version 2`),
		)
		s.awaitDrained()
		s.judge()
		for r, detail := range conflicts {
			letter := s.letterAt(r.Partition, r.Offset)
			if letter.reason != "conflict" || letter.detail != detail || letter.blocks {
				t.Errorf("a letter is %s: %s, wanted %s", letter.reason, letter.detail, detail)
			}
		}
	}
	send()
	p.Stop()
	s.start()
	send() // the same with nothing remembered
	if duplicate, conflict := s.counted("duplicate"), s.counted("conflict"); duplicate != 4 || conflict != 16 {
		t.Errorf("%d duplicates and %d conflicts, wanted 4 and 16", duplicate, conflict)
	}
}

// A producer that sends its whole history again in other bytes is a duplicate of
// itself, and is read back from the topic by the run.
func TestAWholeHistoryInOtherBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	const orders = 4000
	var records, again []*kgo.Record
	for i := range orders {
		id := fmt.Sprintf("o-%04d", i)
		records, again = append(records, created(id)), append(again, rewritten(id))
	}
	s.produce(records...)
	p := s.start()
	s.awaitDrained()
	before := s.contents()["order_rows"]
	s.produce(again...)
	s.awaitDrained()
	s.judge()
	if got := metric(t, p.Registry(), "orderprojector_events_total", "outcome=duplicate"); got != orders {
		t.Errorf("%v duplicates, wanted %d", got, orders)
	}
	if s.contents()["order_rows"] != before {
		t.Error("duplicates touched rows")
	}
}

// What cannot be compared any more is a conflict that says so, never a duplicate on trust.
func TestAnOlderRecordThatIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	s.produce(created("o-1"), created("o-2"))
	s.awaitDrained()
	before := s.read()
	s.deleteBefore(0, 2)

	same, other := created("o-1"), rewritten("o-2")
	s.produce(same, other, amended("o-2", 2, "2.00"))
	s.awaitDrained()
	// To the fold, which remembers the older event, the other bytes are other content.
	s.compare(s.foldGone(before, other))
	letter := s.letterAt(0, other.Offset)
	if want := "same event ID and version as the record at partition 0 offset 1 with other bytes, and that record is gone, so they cannot be compared"; letter.detail != want {
		t.Errorf("the letter says %q, wanted %q", letter.detail, want)
	}
	if s.counted("duplicate") != 1 {
		t.Error("the same bytes need no comparing: a duplicate")
	}
}

// foldGone folds records that are no longer in the topic and then the topic, where what is uncomparable has other content.
func (s *stage) foldGone(gone []projection.Record, uncomparable ...*kgo.Record) *reference.Result {
	s.t.Helper()
	records := s.read()
	for i := range records {
		for _, u := range uncomparable {
			if records[i].Offset == u.Offset && records[i].Partition == u.Partition {
				records[i].Value = []byte(strings.Replace(string(records[i].Value), "19.99", "19.98", 1))
			}
		}
	}
	return s.foldOf(append(gone, records...))
}

// A topic that was created anew holds other records at the offsets that the
// ledger knows: those count as gone.
func TestTheOlderRecordOfARecreatedTopicIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Forgiving: true})
	p := s.start()
	s.produce(created("o-1"), created("o-2"), created("o-3"))
	s.awaitDrained()
	p.Stop()
	before := s.read()

	_, err := s.admin.DeleteTopics(t.Context(), s.topic)
	must(t, err)
	s.sampler.Forget()
	testenv.Await(t, patience, func() (bool, string) {
		topics, err := s.admin.ListTopics(t.Context(), s.topic)
		return err == nil && topics[s.topic].Err != nil, fmt.Sprint("the topic is still there: ", err)
	})
	testenv.CreateTopic(t, s.brokers, s.topic, 1, "retention.ms=-1")
	s.kafka.PurgeTopicsFromProducing(s.topic) // it remembers the old one

	// Offset 0 holds another event than it did, and offset 2 the same in other bytes.
	other, again, same := rewritten("o-1"), rewritten("o-3"), created("o-2")
	s.produce(created("o-9"), other, again, same, amended("o-1", 2, "2.00"))
	s.sampler.Forget()
	s.start()
	s.awaitDrained()
	s.sampler.Forget()
	s.compare(s.foldGone(before, other, again))
	for _, r := range []*kgo.Record{other, again} {
		if letter := s.letterAt(0, r.Offset); letter.reason != "conflict" || !strings.Contains(letter.detail, "that record is gone") {
			t.Errorf("the letter of offset %d: %s: %s", r.Offset, letter.reason, letter.detail)
		}
	}
}
