package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// owner is a member's partition over a store of the test.
type owner struct {
	projection.PartitionHandler
	projector *projection.Projector
}

func newOwner(t *testing.T, store projection.Store, partition int32, committed int64) *owner {
	t.Helper()
	p, err := projection.NewProjector(projection.ProjectorConfig{Group: "g", Store: store, Older: noLog{}, RetryBase: time.Millisecond, RetryCap: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	log := raceLog()
	log.Partition = partition
	handler, _, err := p.Assign(t.Context(), projection.Assignment{TopicPartition: log, Group: "g", Committed: committed, LogEnd: 100})
	if err != nil {
		t.Fatal(err)
	}
	return &owner{handler, p}
}

func (o *owner) handle(t *testing.T, records ...projection.Record) {
	t.Helper()
	if err := o.Handle(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

// lifeEvent is version 1, 2 or 3 of an order's life: created, amended, amended.
func lifeEvent(partition int32, offset int64, orderID string, version int) projection.Record {
	typ, data := "OrderAmended.v1", fmt.Sprintf(`{"total":{"amount":"%d.00","currency":"EUR"}}`, version)
	if version == 1 {
		typ, data = "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"1.00","currency":"EUR"}}`
	}
	log := raceLog()
	log.Partition = partition
	return projection.Record{
		TopicPartition: log, Offset: offset, Key: []byte(orderID), Timestamp: time.Unix(1_700_000_000, 0),
		Value: fmt.Appendf(nil, `{"event_id":"%s-%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`,
			orderID, version, orderID, typ, version, data),
	}
}

func question(t *testing.T, pool *pgxpool.Pool, sql string) string {
	t.Helper()
	var answer string
	if err := pool.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// stoppingStore stops each of its transactions behind the work, until it may commit.
type stoppingStore struct {
	*pgstore.Store
	worked, commit chan struct{}
}

func (s *stoppingStore) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, tx projection.Tx) error {
		if err := work(ctx, tx); err != nil {
			return err
		}
		s.worked <- struct{}{}
		<-s.commit
		return nil
	})
}

// Two owners of a partition are inside their transactions at the same time: 1. Owner A decides three records and is stopped before its
// COMMIT. 2. Owner B takes the same records and waits for the watermark's lock. 3. A commits. 4. B sees A's watermark and rows: to B
// the records are repeats, which are not counted again.
func TestTwoOwnersInsideTheirTransactions(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	second := newOwner(t, store, 0, projection.NoOffset) // both begin at the same offset
	stopping := &stoppingStore{Store: store, worked: make(chan struct{}, 10), commit: make(chan struct{})}
	t.Cleanup(sync.OnceFunc(func() { close(stopping.commit) })) // a failure lets everything go
	assigned := make(chan *owner)
	go func() { assigned <- newOwner(t, stopping, 0, projection.NoOffset) }()
	<-stopping.worked
	stopping.commit <- struct{}{}
	first := <-assigned

	records := []projection.Record{lifeEvent(0, 0, "a", 1), lifeEvent(0, 1, "a", 2), lifeEvent(0, 2, "b", 1)}
	ended := make(chan error, 2)
	go func() { ended <- first.Handle(t.Context(), records) }()
	<-stopping.worked
	go func() { ended <- second.Handle(t.Context(), records) }()
	testenv.Await(t, 10*time.Second, func() (bool, string) {
		return question(t, pool, `SELECT (count(*) > 0)::text FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM projection_watermarks%'`) == "true", "nobody waits for the watermark's lock"
	})
	stopping.commit <- struct{}{}
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	const accounts = `SELECT applied || ' ' || duplicate || ' ' || next_offset FROM projection_watermarks`
	if got := question(t, pool, accounts); got != "3 0 3" {
		t.Errorf("applied, duplicate and watermark: %s", got)
	}
	if got := question(t, pool, `SELECT string_agg(order_id || version || cardinality(ledger_versions), ' ' ORDER BY order_id) FROM order_rows`); got != "a22 b11" {
		t.Errorf("rows: %s", got)
	}

	// The database loses the second half of what was committed. Both owners notice, also the one that has nothing to do.
	if _, err := pool.Exec(t.Context(), `UPDATE projection_watermarks SET next_offset = 1`); err != nil {
		t.Fatal(err)
	}
	var rewind *projection.RewindError
	if err := second.Check(t.Context()); !errors.As(err, &rewind) || rewind.To != 1 {
		t.Errorf("a check after lost commits: %v", err)
	}
}

// While a member reads again below the watermark, it may remember rows of what it read before. A database that falls back
// to an offset between both has lost commits that the member believes in.
func TestReadingAgainNoticesLostCommits(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	records := []projection.Record{lifeEvent(0, 0, "a", 1), lifeEvent(0, 1, "a", 2), lifeEvent(0, 2, "a", 3), lifeEvent(0, 3, "b", 1)}
	newOwner(t, store, 0, projection.NoOffset).handle(t, records...)
	again := newOwner(t, store, 0, 0) // the group was rewound
	again.handle(t, records[0])
	if _, err := pool.Exec(t.Context(), `UPDATE projection_watermarks SET next_offset = 2`); err != nil {
		t.Fatal(err)
	}
	var rewind *projection.RewindError
	if err := again.Handle(t.Context(), records[1:2]); !errors.As(err, &rewind) || rewind.To != 2 {
		t.Errorf("reading on at offset 1, below a watermark that went from 4 to 2: %v", err)
	}
}

// A late owner sees another owner's watermark and remembers that owner's rows. 1. Owner B takes four records. 2. Owner A, which stands at
// offset 1, repeats the second record and sees watermark 4 and order a at version 3. 3. The database falls back to watermark 2, with order
// a at version 2. 4. A takes the third record. Because A remembers version 3, A would call the record a repeat, and version 3 would be lost.
func TestALateOwnerNoticesThatAnotherOwnersCommitsWereLost(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	records := []projection.Record{lifeEvent(0, 0, "a", 1), lifeEvent(0, 1, "a", 2), lifeEvent(0, 2, "a", 3), lifeEvent(0, 3, "b", 1)}
	late, other := newOwner(t, store, 0, projection.NoOffset), newOwner(t, store, 0, projection.NoOffset)
	late.handle(t, records[0])
	other.handle(t, records[:2]...)
	exec(`CREATE TABLE rows_before AS TABLE order_rows; CREATE TABLE watermarks_before AS TABLE projection_watermarks`)
	other.handle(t, records[2:]...)
	late.handle(t, records[1])

	exec(`DELETE FROM order_rows; INSERT INTO order_rows TABLE rows_before;
		DELETE FROM projection_watermarks; INSERT INTO projection_watermarks TABLE watermarks_before`)
	var rewind *projection.RewindError
	if err := late.Handle(t.Context(), records[2:3]); !errors.As(err, &rewind) || rewind.To != 2 {
		t.Errorf("reading on at offset 2, at a watermark that went from 4 to 2: %v", err)
	}
	var next int
	if err := pool.QueryRow(t.Context(), `SELECT next_offset FROM projection_watermarks`).Scan(&next); err != nil {
		t.Fatal(err)
	}
	newOwner(t, store, 0, projection.NoOffset).handle(t, records[next:]...)
	if got := question(t, pool, `SELECT string_agg(order_id || version, ' ' ORDER BY order_id) FROM order_rows`); got != "a3 b1" {
		t.Errorf("rows: %s", got)
	}
	if got := question(t, pool, `SELECT applied || ' ' || duplicate || ' ' || next_offset FROM projection_watermarks`); got != "4 0 4" {
		t.Errorf("applied, duplicate and watermark: %s", got)
	}
}

// An order's key moved to another partition, whose member parked version 3. The first member remembers the order and appends version 2
// without a look at the locked row. The parked event is released in the same transaction.
func TestAnAppendReleasesWhatAnotherPartitionParked(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	one, other := newOwner(t, store, 0, projection.NoOffset), newOwner(t, store, 1, projection.NoOffset)
	one.handle(t, lifeEvent(0, 0, "a", 1))
	// Parked beside the row: its status and revision are as the first member remembers them.
	other.handle(t, lifeEvent(1, 0, "a", 3))
	if _, err := pool.Exec(t.Context(), `UPDATE order_rows SET projection_status = 'ok', waiting_for_version = NULL, revision = 0`); err != nil {
		t.Fatal(err)
	}
	one.handle(t, lifeEvent(0, 1, "a", 2))
	if got := question(t, pool, `SELECT version || ' ' || projection_status || ' ' || (SELECT count(*) FROM parked_events) FROM order_rows`); got != "3 ok 0" {
		t.Errorf("version, status and parked events: %s", got)
	}
}

// Operators passed the first version of an order that has no row, as when the tables are new. The row's insert is refused, and
// the record is decided on the locked row, with the decision.
func TestAnInsertHeedsOperatorsDecisions(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO operator_decisions (order_id, kind, from_version, to_version, actor, comment)
		VALUES ('a', 'accept_gap', 1, 1, 'somebody', 'lost')`); err != nil {
		t.Fatal(err)
	}
	newOwner(t, store, 0, projection.NoOffset).handle(t, lifeEvent(0, 0, "a", 1), lifeEvent(0, 1, "b", 1))
	if got := question(t, pool, `SELECT string_agg(order_id || ' ' || version || ' ' || ledger_types[1], ', ' ORDER BY order_id) FROM order_rows`); got != "a 1 skipped, b 1 OrderCreated.v1" {
		t.Errorf("rows: %s", got)
	}
	if got := question(t, pool, `SELECT applied || ' ' || stale FROM projection_watermarks`); got != "1 1" {
		t.Errorf("applied and stale: %s", got)
	}
}
