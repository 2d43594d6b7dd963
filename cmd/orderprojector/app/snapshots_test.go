package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// The age of a replication slot is counted from when it was first seen, and one whose snapshot moves holds nothing for long.
func TestAgeOfSnapshotsThatTheDatabaseDoesNotTell(t *testing.T) {
	t.Parallel()
	var holders []pgstore.SnapshotHolder
	var failure error
	stats := newSnapshotStats(func(context.Context) ([]pgstore.SnapshotHolder, error) { return holders, failure }, slog.New(slog.DiscardHandler))
	age := func() float64 {
		stats.refresh(t.Context())
		return testutil.ToFloat64(stats)
	}
	told := 7.0
	slot := pgstore.SnapshotHolder{Name: "replication slot s", Xmin: "100", Transactions: 5}
	holders = []pgstore.SnapshotHolder{slot, {Name: "session 1", Xmin: "101", Transactions: 4, Seconds: &told}}
	if got := age(); got != told {
		t.Errorf("age %v, the database said %v", got, told)
	}
	holders = holders[:1]
	time.Sleep(20 * time.Millisecond)
	if got := age(); got < 0.02 || got > told {
		t.Errorf("age of a slot that stays: %v", got)
	}
	holders[0].Xmin = "101"
	if got := age(); got >= 0.02 {
		t.Errorf("age of a slot that moved: %v", got)
	}
	holders[0].Transactions = 0
	time.Sleep(20 * time.Millisecond)
	if got := age(); got != 0 {
		t.Errorf("age of a slot that holds nothing: %v", got)
	}
	failure = errors.New("permission denied")
	stats.refresh(t.Context())
	stats.readAt = time.Now().Add(-statsExpiry - time.Second)
	if n := testutil.CollectAndCount(stats); n > 0 {
		t.Error("a metric is shown although the database has not answered for a minute")
	}
}
