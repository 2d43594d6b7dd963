package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func TestDatabaseStats(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1000, 0)
	var answer error
	s := newDatabaseStats(func(context.Context) (pgstore.Stats, error) {
		return pgstore.Stats{
			Held:         pgstore.HeldStats{Records: 4, OldestSeconds: 90, Overdue: 1},
			ParkedEvents: 3, ParkedOldestSeconds: 60, DeadLettersOldestSeconds: 7,
			DeadLetters: []pgstore.LetterCount{{Status: "open", Reason: "illegal", Letters: 2}},
			Watermarks:  []pgstore.WatermarkAge{{KafkaTopic: "t", KafkaPartition: 1, Seconds: 5}},
		}, answer
	}, slog.New(slog.DiscardHandler))
	s.now = func() time.Time { return clock }

	expectSeries := func(when string, want int) {
		t.Helper()
		if n := testutil.CollectAndCount(s); n != want {
			t.Errorf("%s: %d series, want %d", when, n, want)
		}
	}
	expectSeries("before the first answer", 0)
	s.refresh(t.Context())
	expectSeries("after an answer", 8+5*4+1)
	clock = clock.Add(10 * time.Second)
	answer = errors.New("down")
	s.refresh(t.Context())
	err := testutil.CollectAndCompare(s, strings.NewReader(`
# HELP orderprojector_held_oldest_seconds For how long the oldest held record is held; 0 when there is none.
# TYPE orderprojector_held_oldest_seconds gauge
orderprojector_held_oldest_seconds 90
# HELP orderprojector_held_overdue Held records that are held for longer than the deadline.
# TYPE orderprojector_held_overdue gauge
orderprojector_held_overdue 1
# HELP orderprojector_held_records Records that could not be made durable while others could. They are tried again.
# TYPE orderprojector_held_records gauge
orderprojector_held_records 4
# HELP orderprojector_parked_events Events that wait for a version before them.
# TYPE orderprojector_parked_events gauge
orderprojector_parked_events 3
# HELP orderprojector_watermark_age_seconds How long ago the partition's watermark advanced. Grows while there is nothing to read.
# TYPE orderprojector_watermark_age_seconds gauge
orderprojector_watermark_age_seconds{partition="1",topic="t"} 15
`), "orderprojector_held_records", "orderprojector_held_oldest_seconds", "orderprojector_held_overdue", "orderprojector_parked_events", "orderprojector_watermark_age_seconds")
	if err != nil {
		t.Error(err)
	}
	clock = clock.Add(statsExpiry)
	expectSeries("when the answer is too old", 0)

	problems, err := testutil.CollectAndLint(s)
	if err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

func TestAScrapeDoesNotWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	asked, done := make(chan struct{}), make(chan struct{})
	s := newDatabaseStats(func(ctx context.Context) (pgstore.Stats, error) {
		close(asked)
		<-ctx.Done() // a database that hangs
		return pgstore.Stats{}, ctx.Err()
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.run(ctx); close(done) }()
	<-asked
	if n := testutil.CollectAndCount(s); n != 0 {
		t.Errorf("%d series", n)
	}
	cancel()
	<-done
}
