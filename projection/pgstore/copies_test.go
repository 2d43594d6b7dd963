package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/lettercopy"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

const copyGroup = "g"

// openQueue opens a session with the copies that are due, beside the pool.
func openQueue(t *testing.T, pool *pgxpool.Pool) (lettercopy.Queue, error) {
	t.Helper()
	open := pgstore.OpenCopyQueue(copyGroup, func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	})
	q, err := open(t.Context())
	if err == nil {
		t.Cleanup(q.Close)
	}
	return q, err
}

func mustOpenQueue(t *testing.T, pool *pgxpool.Pool) lettercopy.Queue {
	t.Helper()
	q, err := openQueue(t, pool)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func deadLetter(offset int64, value string) *projection.DeadLetter {
	return &projection.DeadLetter{
		Group: copyGroup, OrderID: "o-1", EventID: "e-1", Version: 3, Reason: projection.Illegal, Detail: "why",
		Record: projection.Record{
			TopicPartition: projection.TopicPartition{Topic: "orders", TopicID: projection.TopicID{1}, Partition: 2}, Offset: offset,
			Timestamp: time.Date(2020, 2, 2, 2, 2, 2, 222e6, time.UTC), LogAppendTime: true,
			Value:   []byte(value),
			Headers: []projection.Header{{Key: "trace", Value: []byte{}}, {Key: "trace"}, {Key: "trace", Value: []byte("x")}},
		},
	}
}

func addLetters(t *testing.T, store *pgstore.Store, letters ...*projection.DeadLetter) {
	t.Helper()
	err := store.InTx(t.Context(), func(ctx context.Context, tx projection.Tx) error { return tx.AddLetters(ctx, letters) })
	if err != nil {
		t.Fatal(err)
	}
}

func due(t *testing.T, q lettercopy.Queue, maxLetters int, maxBytes int64) []*lettercopy.Letter {
	t.Helper()
	letters, err := q.Due(t.Context(), maxLetters, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

func offsets(letters []*lettercopy.Letter) (all []int64) {
	for _, l := range letters {
		all = append(all, l.Record.Offset)
	}
	return all
}

func TestLettersAreDueUntilTheyAreCopied(t *testing.T) {
	store, pool := openStore(t)
	q := mustOpenQueue(t, pool)
	addLetters(t, store, deadLetter(7, "v"))
	addLetters(t, store, deadLetter(7, "v")) // read again
	got := due(t, q, 10, 1<<20)
	if len(got) != 1 {
		t.Fatalf("%d letters are due", len(got))
	}
	l := *got[0]
	want := lettercopy.Letter{
		ID: l.ID, Group: copyGroup, Attempts: 1, OrderID: "o-1", EventID: "e-1", Version: 3, Reason: "illegal", Detail: "why",
		Record: deadLetter(7, "v").Record, FirstFailedAt: l.FirstFailedAt, LastFailedAt: l.FirstFailedAt,
	}
	l.Record.Timestamp = l.Record.Timestamp.UTC()
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("the letter (-want +got):\n%s", diff)
	}
	settle(t, q, lettercopy.Receipt{Letter: got[0], Form: lettercopy.Whole, Topic: "orders-dlt", Partition: 2, Offset: 9})
	if got := due(t, q, 10, 1<<20); len(got) != 0 {
		t.Errorf("%d letters are due after their copy", len(got))
	}

	// It dies again: another lap.
	if _, err := pool.Exec(t.Context(), `UPDATE dead_letters SET attempts = 2`); err != nil {
		t.Fatal(err)
	}
	if got = due(t, q, 10, 1<<20); len(got) != 1 || got[0].Attempts != 2 {
		t.Fatalf("due for the second lap: %v", got)
	}
	settle(t, q, lettercopy.Receipt{Letter: got[0], Form: lettercopy.NoCopy, Reason: "too large", Topic: "orders-dlt"})
	if got := due(t, q, 10, 1<<20); len(got) != 0 {
		t.Errorf("%d letters are due although they cannot be copied", len(got))
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM dead_letters`); err != nil {
		t.Fatal(err)
	}
}

func settle(t *testing.T, q lettercopy.Queue, receipts ...lettercopy.Receipt) {
	t.Helper()
	if err := q.Settle(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
}

func TestDueLettersAreBounded(t *testing.T) {
	store, pool := openStore(t)
	q := mustOpenQueue(t, pool)
	addLetters(t, store, deadLetter(1, strings.Repeat("a", 1000)), deadLetter(2, strings.Repeat("b", 1000)), deadLetter(3, "c"))
	if got := offsets(due(t, q, 2, 1<<20)); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("two at most: %v", got)
	}
	if got := offsets(due(t, q, 10, 1500)); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("1500 bytes at most, give or take one letter: %v", got)
	}
	if got := offsets(due(t, q, 10, 1)); !slices.Equal(got, []int64{1}) {
		t.Errorf("one larger than the bound: %v", got)
	}
}

func TestPostponedLettersLetOthersPass(t *testing.T) {
	store, pool := openStore(t)
	q := mustOpenQueue(t, pool)
	addLetters(t, store, deadLetter(1, "a"), deadLetter(2, "b"))
	first := due(t, q, 1, 1<<20)[0]
	err := q.Postpone(t.Context(), []lettercopy.Receipt{{Letter: first, Err: errors.New("no\x00key")}}, []time.Duration{time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := offsets(due(t, q, 10, 1<<20)); !slices.Equal(got, []int64{2}) {
		t.Errorf("due: %v", got)
	}
	if _, err := pool.Exec(t.Context(), `UPDATE letter_copies SET due_at = now()`); err != nil {
		t.Fatal(err)
	}
	if got := due(t, q, 1, 1<<20); got[0].Record.Offset != 1 && got[0].CopyFailures != 1 {
		t.Errorf("due: %+v", got[0])
	}
}

func TestOneSessionPublishesAndAnotherTakesOver(t *testing.T) {
	_, pool := openStore(t)
	first := mustOpenQueue(t, pool)
	_, err := openQueue(t, pool)
	if !errors.Is(err, lettercopy.ErrStandby) || !strings.Contains(err.Error(), "database session") {
		t.Errorf("the second one: %v", err)
	}
	first.Close()
	testenv.Await(t, 30*time.Second, func() (bool, string) { // the server notices in its own time
		_, err := openQueue(t, pool)
		return err == nil, fmt.Sprint(err)
	})
}
