package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const controlGroup = "g"

var controlPolicy = projection.BreakerPolicy{Window: 5 * time.Minute, MinLetters: 100}

func consumption(t *testing.T, store *pgstore.Store) projection.Consumption {
	t.Helper()
	c, err := store.Consumption(t.Context(), controlGroup)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func auditRows(t *testing.T, pool *pgxpool.Pool) (rows []string) {
	t.Helper()
	found, err := pool.Query(t.Context(), `SELECT concat_ws(' ', actor, action, target, comment, before->>'state', after->>'state') FROM audit_log ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	for found.Next() {
		var row string
		if err := found.Scan(&row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestPauseAndResumeAreStoredAndAudited(t *testing.T) {
	store, pool := openStore(t)
	ann, bob := projection.By{Actor: "ann", Comment: "maintenance"}, projection.By{Actor: "bob", Comment: "done"}
	var nothing *pgstore.StateError
	if _, err := store.Resume(t.Context(), controlGroup, bob); !errors.As(err, &nothing) {
		t.Errorf("resuming what runs: %v", err)
	}
	if _, err := store.Pause(t.Context(), controlGroup, ann); err != nil {
		t.Fatal(err)
	}
	if p := consumption(t, store).Pause; p == nil || p.By != ann || time.Since(p.Since) > time.Minute {
		t.Errorf("stored: %+v", p)
	}
	if _, err := store.Pause(t.Context(), controlGroup, bob); !errors.As(err, &nothing) || !strings.Contains(err.Error(), "paused by ann") {
		t.Errorf("pausing what is paused: %v", err)
	}
	if other, err := store.Consumption(t.Context(), "h"); err != nil || other.Closed() != nil {
		t.Errorf("another group: %v %v", other, err)
	}
	trip(t, store)
	before, err := store.Resume(t.Context(), controlGroup, bob)
	if err != nil || before.Pause == nil || before.Breaker == nil {
		t.Errorf("resumed from %+v: %v", before, err)
	}
	if c := consumption(t, store); c.Closed() != nil {
		t.Errorf("after resuming: %v", c.Closed())
	}
	want := []string{"ann pause group g maintenance running paused", "bob resume group g done breaker_open running"}
	if diff := cmp.Diff(want, auditRows(t, pool)); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

func trip(t *testing.T, store *pgstore.Store) {
	t.Helper()
	err := store.InTx(t.Context(), func(ctx context.Context, tx projection.Tx) error {
		return tx.TripBreaker(ctx, controlGroup, projection.BreakerTrip{Reason: projection.Illegal, Letters: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refuse counts events of which some were refused, and returns the window.
func refuse(t *testing.T, store *pgstore.Store, events, refused int64) (w projection.BreakerWindow) {
	t.Helper()
	key := projection.WatermarkKey{Group: controlGroup, TopicPartition: projection.TopicPartition{Topic: "orders"}}
	err := store.InTx(t.Context(), func(ctx context.Context, tx projection.Tx) (err error) {
		if err = tx.InsertWatermark(ctx, key, 0); err == nil {
			err = tx.AdvanceWatermark(ctx, key, events, projection.Counts{projection.Applied: events}, 0)
		}
		if err == nil && refused > 0 {
			w, err = tx.NoteRefusals(ctx, key, []projection.Refusals{{Reason: projection.Invalid, Letters: refused, OrderIDs: []string{"o"}}}, controlPolicy)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func note(t *testing.T, store *pgstore.Store) {
	t.Helper()
	if err := store.NoteEvents(t.Context(), controlGroup, 10*time.Second, controlPolicy.Window); err != nil {
		t.Fatal(err)
	}
}

// age makes everything of the window older, as the passing of time does.
func age(t *testing.T, pool *pgxpool.Pool, by string) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE breaker_events SET noted_at = noted_at - $1::interval`, `UPDATE breaker_letters SET bucket = bucket - $1::interval`,
	} {
		if _, err := pool.Exec(t.Context(), sql, by); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheBreakersWindowMovesWithTime(t *testing.T) {
	store, pool := openStore(t)
	expect := func(what string, events, letters int64) {
		t.Helper()
		w := refuse(t, store, 0, 1)
		if w.Events != events || w.Refused[0].Letters != letters {
			t.Errorf("%s: %d events and %d letters, want %d and %d", what, w.Events, w.Refused[0].Letters, events, letters)
		}
	}
	expect("without a note", -1, 1)
	refuse(t, store, 1000, 0)
	note(t, store)
	expect("right after the note", 0, 2)
	refuse(t, store, 10, 5)
	expect("since the first note", 10, 8)
	age(t, pool, "4 minutes")
	note(t, store)
	refuse(t, store, 100, 0)
	expect("within the window", 110, 9)
	age(t, pool, "2 minutes") // notes 6 and 2 minutes ago
	expect("since the note before the window", 110, 2)
	age(t, pool, "4 minutes") // notes 10 and 6 minutes ago
	expect("since the newest such note", 100, 2)
	note(t, store)
	if n := rows(t, pool, "breaker_events"); n != 2 {
		t.Errorf("%d notes are kept", n)
	}
	age(t, pool, "1 hour")
	refuse(t, store, 1, 0)
	note(t, store)
	if n := rows(t, pool, "breaker_letters"); n != 0 {
		t.Errorf("%d buckets are kept", n)
	}
	trip(t, store)
	if _, err := store.Resume(t.Context(), controlGroup, projection.By{Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	expect("after resuming", 0, 1)
}

func rows(t *testing.T, pool *pgxpool.Pool, table string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Members note in turns, and not at all while nothing happens.
func TestEventsAreNotedOnce(t *testing.T) {
	store, pool := openStore(t)
	for range 3 {
		note(t, store)
	}
	age(t, pool, "1 minute")
	note(t, store) // nothing was counted
	if n := rows(t, pool, "breaker_events"); n != 1 {
		t.Errorf("%d notes", n)
	}
	refuse(t, store, 1, 0)
	note(t, store)
	note(t, store)
	if n := rows(t, pool, "breaker_events"); n != 2 {
		t.Errorf("%d notes", n)
	}
}
