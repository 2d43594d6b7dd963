package pgstore_test

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// A timestamptz holds a part of Kafka's times. Letters, their copies and held records come back with the exact number
// all the same, and the column that people read has the nearest time.
func TestKafkaTimesComeBackExactly(t *testing.T) {
	store, pool := openStore(t)
	var letters []*projection.DeadLetter
	var held []*projection.HeldRecord
	for i, millis := range projectiontest.KafkaTimes() {
		l := deadLetter(int64(i), "v")
		l.Record.Timestamp = time.UnixMilli(millis)
		letters, held = append(letters, l), append(held, &projection.HeldRecord{Record: l.Record, OrderID: "o-1", EventID: "e-1", Cause: "why", Class: "deadline"})
	}
	addLetters(t, store, letters...)
	millis := map[string][]int64{}
	note := func(what string, r *projection.Record) { millis[what] = append(millis[what], r.Timestamp.UnixMilli()) }
	for _, l := range due(t, mustOpenQueue(t, pool), 100, 1<<20) {
		note("copies that are due", &l.Record)
	}
	err := store.InOperatorTx(t.Context(), func(ctx context.Context, tx projection.OperatorTx) error {
		all, err := tx.LettersOf(ctx, copyGroup, "o-1")
		var ids []int64
		for _, l := range all {
			note("letters of the order", &l.Record)
			ids = append(ids, l.ID)
		}
		if err != nil {
			return err
		}
		all, err = tx.Letters(ctx, copyGroup, ids)
		for _, l := range all {
			note("letters by their IDs", &l.Record)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = store.InTx(t.Context(), func(ctx context.Context, tx projection.Tx) error {
		_, err := tx.Hold(ctx, copyGroup, held)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = store.InOperatorTx(t.Context(), func(ctx context.Context, tx projection.OperatorTx) error {
		taken, err := tx.HeldOf(ctx, copyGroup, "o-1")
		byOffset := make([]*projection.Record, len(taken))
		for i := range taken {
			byOffset[taken[i].Record.Offset] = &taken[i].Record
		}
		for _, r := range byOffset {
			note("held records", r)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"copies that are due", "letters of the order", "letters by their IDs", "held records"} {
		if diff := cmp.Diff(projectiontest.KafkaTimes(), millis[what]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}

	for _, table := range []string{"dead_letters", "held_records"} {
		rows, err := pool.Query(t.Context(), `SELECT kafka_offset, kafka_timestamp_ms, extract(epoch FROM kafka_timestamp) * 1000 = kafka_timestamp_ms,
			to_char(kafka_timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US BC')
			FROM `+table+` WHERE kafka_timestamp_ms IS NOT NULL ORDER BY kafka_offset`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		beyond := 0
		for rows.Next() {
			var offset, number int64
			var same bool
			var shown string
			if err := rows.Scan(&offset, &number, &same, &shown); err != nil {
				t.Fatal(err)
			}
			beyond++
			want := "294276-12-31 23:59:59.999999 AD"
			if number < 0 {
				want = "4714-11-24 00:00:00.000000 BC"
			}
			if number != projectiontest.KafkaTimes()[offset] || same || shown != want {
				t.Errorf("%s, offset %d: kafka_timestamp_ms %d, kafka_timestamp %s", table, offset, number, shown)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if beyond != 11 {
			t.Errorf("%s: %d rows have a number of their own, want 11", table, beyond)
		}
	}
}

// A record becomes a letter whatever is in it: the statement that stores letters never fails because of one.
func TestLetterIsStoredWhateverItsRecordHolds(t *testing.T) {
	store, pool := openStore(t)
	nasty := "\x00\xff\xed\xa0\x80\u2028\ufffe'\"\\{}%s\x1b[31m"
	manyHeaders := make([]projection.Header, 500_000) // two bytes each in Kafka's format: a record of 1 MB
	odd := []projection.Header{
		{Key: nasty, Value: []byte(nasty)}, {}, {Key: "\x00"}, {Key: `\u0000`, Value: []byte{}}, {Key: strings.Repeat("k\x00", 1<<19), Value: bytes.Repeat([]byte{0}, 1<<19)},
	}
	letters := []*projection.DeadLetter{
		{Group: copyGroup, Reason: projection.Invalid, Detail: nasty, Record: projection.Record{Key: []byte(nasty), Value: []byte(nasty), Headers: odd, Timestamp: time.UnixMilli(math.MinInt64)}},
		{Group: copyGroup, Reason: projection.Invalid, Detail: strings.Repeat("\xff", 1<<20), Record: projection.Record{Key: []byte{}, Value: bytes.Repeat([]byte{0xff}, 8<<20), Timestamp: time.UnixMilli(math.MaxInt64)}},
		{Group: copyGroup, Reason: projection.Invalid, Record: projection.Record{Key: bytes.Repeat([]byte("k"), 1<<20), Headers: manyHeaders}},
		{
			Group: copyGroup, Reason: projection.Conflict, Version: math.MaxInt64, OrderID: strings.Repeat("\U0001F600", 50), EventID: strings.Repeat("é", 100), Type: strings.Repeat("\x7f", 200),
			Record: projection.Record{Value: []byte(nasty), Headers: []projection.Header{{Key: "ce_" + nasty, Value: nil}}},
		},
	}
	for i, l := range letters {
		l.Record.TopicPartition, l.Record.Offset = deadLetter(0, "").Record.TopicPartition, int64(i)
	}
	addLetters(t, store, letters...)
	got := due(t, mustOpenQueue(t, pool), 10, 1<<40)
	if len(got) != len(letters) {
		t.Fatalf("%d letters of %d", len(got), len(letters))
	}
	for i, l := range letters {
		want := l.Record
		if len(want.Headers) == 0 {
			want.Headers = nil
		}
		if !got[i].Record.Timestamp.Equal(want.Timestamp) {
			t.Errorf("letter %d: timestamp %v, want %v", i, got[i].Record.Timestamp, want.Timestamp)
		}
		got[i].Record.Timestamp = want.Timestamp
		if !cmp.Equal(want, got[i].Record) || got[i].OrderID != l.OrderID || got[i].EventID != l.EventID || got[i].Version != l.Version {
			t.Errorf("letter %d does not come back as it was", i)
		}
	}
}
