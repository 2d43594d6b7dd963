package pgstore_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// bulkLetters is how many dead letters the redrive of the test below works off.
const bulkLetters = 100_000

// TestRedriveOfManyLetters works off a hundred thousand letters: in bounded memory, interrupted
// in the middle and continued, each of them once.
func TestRedriveOfManyLetters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute or more")
	}
	store, pool := openStore(t)
	// 1 KiB of payload each, so that holding on to the records would show.
	_, err := pool.Exec(t.Context(), `
		INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers,
			order_id, version, event_id, reason, detail, blocks)
		SELECT 'g', 't', '00000000-0000-0000-0000-000000000001', 0, n, now(), convert_to('o-' || n % 40000, 'UTF8'),
			convert_to(format('{"event_id":"e-%s","order_id":"o-%s","type":"%s","version":%s,"occurred_at":"2026-01-01T10:00:00Z","data":%s}', n, n % 40000,
				CASE WHEN n < 40000 THEN 'OrderCreated.v1' ELSE 'OrderAmended.v1' END, n / 40000 + 1,
				CASE WHEN n < 40000 THEN '{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"},"more":"' ELSE '{"total":{"amount":"19.99","currency":"EUR"},"more":"' END
					|| repeat('x', 1000) || '"}'), 'UTF8'),
			'[]', 'o-' || n % 40000, n / 40000 + 1, 'e-' || n, 'unsupported', 'unknown event type or schema version', true
		FROM generate_series(0, $1 - 1) AS n`, bulkLetters)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := projection.NewOperator(projection.OperatorConfig{Group: "g", Topic: "t", Store: store, Older: noRecords{}})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most, tried := m.HeapAlloc, uint64(0), int64(0)
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := projection.RedriveRequest{
		Selection: projection.LetterSelection{All: true}, Execute: true, By: projection.By{Actor: "ann"},
		Each: func(projection.RedriveResult) {
			if tried++; tried == bulkLetters/3 {
				cancel()
			}
			if tried%2000 == 0 {
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		},
	}
	report, err := operator.Redrive(ctx, req)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want it to be interrupted", err)
	}
	req.Resume, req.Selection = report.JobID, projection.LetterSelection{}
	second, err := operator.Redrive(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("%d letters in %s: %.0f per second; at most %d MiB of heap beyond the start", tried, took.Round(time.Second),
		float64(tried)/took.Seconds(), (most-min(most, before))>>20)
	if report.Tried+second.Tried != bulkLetters || report.Redriven+second.Redriven != bulkLetters {
		t.Errorf("tried %d and %d, redriven %d and %d", report.Tried, second.Tried, report.Redriven, second.Redriven)
	}
	if grown := most - min(most, before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	got := collect[string](t, pool, `SELECT count(*) || ' ' || sum(version) || ' ' || count(*) FILTER (WHERE projection_status = 'ok') FROM order_rows`)
	if got[0] != "40000 100000 40000" {
		t.Errorf("orders, versions, orders that are ok: %s", got[0])
	}
	got = collect[string](t, pool, `SELECT (SELECT count(*) FROM dead_letters WHERE status = 'redriven') || ' ' || (SELECT count(*) FROM audit_log) || ' '
		|| (SELECT letters || ' ' || redriven || ' ' || status FROM redrive_jobs)`)
	if got[0] != "100000 100000 100000 100000 done" {
		t.Errorf("redriven, audited, job: %s", got[0])
	}
}

type noRecords struct{}

// ReadRecords implements projection.RecordReader.
func (noRecords) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return errors.New("nothing has to be read again")
}
