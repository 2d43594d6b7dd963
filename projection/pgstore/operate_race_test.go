package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
)

// race is a topic of one partition that grows while a member and operators work.
type race struct {
	t     *testing.T
	store *pgstore.Store

	mu    sync.Mutex
	log   []projection.Record
	grown chan struct{} // something was appended
}

func raceLog() projection.TopicPartition {
	return projection.TopicPartition{Topic: "t", TopicID: projection.TopicID{9}}
}

func (r *race) append(orderID, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, projection.Record{
		TopicPartition: raceLog(), Offset: int64(len(r.log)), Timestamp: time.Unix(1_700_000_000, 0), Key: []byte(orderID), Value: []byte(value),
	})
	select {
	case r.grown <- struct{}{}:
	default:
	}
}

func (r *race) records(from, until int64) []projection.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	until = min(until, int64(len(r.log)))
	return slices.Clone(r.log[min(from, until):until])
}

// ReadRecords implements projection.RecordReader.
func (r *race) ReadRecords(_ context.Context, _ projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	for _, offset := range offsets {
		for _, rec := range r.records(offset, offset+1) {
			found(rec)
		}
	}
	return nil
}

// Ranges implements projection.Log.
func (r *race) Ranges(context.Context, string) ([]projection.LogRange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []projection.LogRange{{TopicPartition: raceLog(), Until: int64(len(r.log))}}, nil
}

// ReadRange implements projection.Log.
func (r *race) ReadRange(_ context.Context, lr projection.LogRange, fn func(projection.Record) error) error {
	for _, rec := range r.records(lr.From, lr.Until) {
		if err := fn(rec); err != nil {
			return err
		}
	}
	return nil
}

func raceEvent(order string, version int, typ, data string) string {
	return fmt.Sprintf(`{"event_id":"%s-e%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`, order, version, order, typ, version, data)
}

// TestOperatorsAndAMemberAtOnce lets a live member and three operators act on the same few orders
// at once. Nothing may be lost, nothing wait for ever, and every row has to be what an independent
// fold of the records and the decisions makes of it.
func TestOperatorsAndAMemberAtOnce(t *testing.T) {
	t.Parallel()
	store, pool := openStore(t)
	r := &race{t: t, store: store, grown: make(chan struct{}, 1)}
	const orders, versions = 6, 30
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: "g", Store: store, Older: r, RetryBase: time.Millisecond, RetryCap: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	member, _, err := projector.Assign(ctx, projection.Assignment{Group: "g", TopicPartition: raceLog(), Committed: projection.NoOffset})
	if err != nil {
		t.Fatal(err)
	}
	var published, caughtUp atomic.Bool
	done := make(chan struct{})
	var workers sync.WaitGroup
	workers.Go(func() { // the order services
		defer published.Store(true)
		rnd := rand.New(rand.NewPCG(1, 2))
		for v := 1; v <= versions; v++ {
			for o := range orders {
				id := fmt.Sprintf("o-%d", o)
				value := raceEvent(id, v, "OrderAmended.v1", `{"total":{"amount":"19.99","currency":"EUR"}}`)
				switch {
				case v == 1:
					value = raceEvent(id, v, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"}}`)
				case v%5 == 0 && rnd.IntN(2) == 0:
					value = raceEvent(id, v, "OrderPacked.v1", `{}`) // illegal: it is not paid
				case v%5 == 0:
					value = raceEvent(id, v, "OrderGiftWrapped.v1", `{}`) // unsupported
				case v%7 == 0:
					continue // lost
				}
				r.append(id, value)
				if rnd.IntN(3) == 0 {
					r.append(id, value)
				}
			}
		}
	})
	workers.Go(func() { // the member
		for position := int64(0); ctx.Err() == nil; {
			records := r.records(position, position+7)
			if len(records) == 0 {
				caughtUp.Store(published.Load() && position == int64(len(r.records(0, 1<<40))))
				select {
				case <-done:
					return
				case <-r.grown:
				case <-time.After(50 * time.Millisecond): // to see that everything is published
				}
				continue
			}
			if err := member.Handle(ctx, records); err != nil {
				t.Errorf("the member: %v", err)
				return
			}
			position += int64(len(records))
		}
	})
	var operators sync.WaitGroup
	for i := range 3 {
		operators.Go(func() {
			operator, err := projection.NewOperator(projection.OperatorConfig{
				Group: "g", Topic: "t", Store: store, Older: r, Log: r, RetryBase: time.Millisecond, RetryCap: 20 * time.Millisecond,
			})
			if err != nil {
				t.Error(err)
				return
			}
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			by := projection.By{Actor: fmt.Sprintf("operator-%d", i), Comment: "race"}
			for idle := 0; ctx.Err() == nil && (idle < 20 || !caughtUp.Load()); {
				acted, err := actOnce(ctx, operator, pool, rnd, by)
				var refused *projection.RefusedError
				var missing *projection.NotFoundError
				if err != nil && !errors.As(err, &refused) && !errors.As(err, &missing) {
					t.Errorf("operator %d: %v", i, err)
					return
				}
				if idle++; acted {
					idle = 0
				}
			}
		})
	}
	operators.Wait()
	close(done)
	workers.Wait()
	if ctx.Err() != nil {
		t.Fatal("it does not end: something waits for ever")
	}

	decisions, err := compare.Decisions(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	fold := reference.NewFold()
	for _, d := range decisions {
		fold.Decide(d)
	}
	for _, rec := range r.records(0, 1<<40) {
		fold.Add(rec)
	}
	report, err := compare.Compare(t.Context(), fold.Result(), pool, "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Differences {
		t.Error(d)
	}
	actions := collect[string](t, pool, `SELECT action || ' ' || count(*) FROM audit_log GROUP BY action ORDER BY action`)
	t.Log("audited: ", strings.Join(actions, ", "))
	for what, sql := range map[string]string{
		"open letters that were overtaken": `SELECT l.id::text FROM dead_letters l JOIN order_rows r USING (order_id) WHERE l.status = 'open' AND l.blocks AND l.version <= r.version`,
		"parked events whose turn came":    `SELECT p.order_id FROM parked_events p JOIN order_rows r USING (order_id) WHERE p.version <= r.version + 1`,
		"orders that are not done":         fmt.Sprintf(`SELECT order_id || ' ' || version || ' ' || projection_status FROM order_rows WHERE version < %d OR projection_status <> 'ok'`, versions-versions%5),
		"skips that do not stand once": `SELECT d.order_id FROM operator_decisions d, generate_series(d.from_version, d.to_version) v
			WHERE d.undone_at IS NULL AND d.kind <> 'substitute' GROUP BY d.order_id, v HAVING count(*) > 1`,
	} {
		if found := collect[string](t, pool, sql); len(found) > 0 {
			t.Errorf("%s: %q", what, found)
		}
	}
}

func collect[T any](t *testing.T, pool interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, sql string, args ...any,
) []T {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// actOnce does something about what waits, if something does.
func actOnce(ctx context.Context, operator *projection.Operator, pool interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, rnd *rand.Rand, by projection.By,
) (acted bool, err error) {
	rows, err := pool.Query(ctx, `SELECT id, order_id, version FROM dead_letters WHERE status IN ('open', 'exhausted') AND order_id IS NOT NULL AND version IS NOT NULL LIMIT 20`)
	if err != nil {
		return false, err
	}
	type waiting struct {
		ID      int64
		OrderID string
		Version int64
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[waiting])
	if err != nil {
		return false, err
	}
	if len(letters) > 0 && rnd.IntN(4) > 0 {
		l := letters[rnd.IntN(len(letters))]
		switch rnd.IntN(4) {
		case 0:
			_, err = operator.Redrive(ctx, projection.RedriveRequest{Selection: projection.LetterSelection{Order: l.OrderID}, Execute: true, By: by, MaxFailureRatio: 1})
			if err == nil && rnd.IntN(2) == 0 { // what is exhausted needs something else
				_, err = operator.Discard(ctx, l.ID, projection.DiscardRequest{Skip: true, Execute: true, By: by})
			}
		case 1:
			_, err = operator.Discard(ctx, l.ID, projection.DiscardRequest{Skip: true, Execute: true, By: by})
		default:
			substitute := raceEvent(l.OrderID, int(l.Version), "OrderAmended.v1", `{"total":{"amount":"20.00","currency":"EUR"}}`)
			_, err = operator.Redrive(ctx, projection.RedriveRequest{
				Selection: projection.LetterSelection{IDs: []int64{l.ID}}, Execute: true, By: by, Substitute: []byte(substitute),
			})
		}
		return true, err
	}
	rows, err = pool.Query(ctx, `SELECT order_id, from_version, to_version FROM gaps LIMIT 20`)
	if err != nil {
		return false, err
	}
	type gap struct {
		OrderID  string
		From, To int64
	}
	gaps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[gap])
	if err != nil || len(gaps) == 0 {
		return len(letters) > 0, err
	}
	g := gaps[rnd.IntN(len(gaps))]
	_, err = operator.AcceptGap(ctx, g.OrderID, g.From, g.To, true, by)
	if err == nil && rnd.IntN(5) == 0 {
		rows, err := pool.Query(ctx, `SELECT id FROM operator_decisions WHERE undone_at IS NULL ORDER BY random() LIMIT 1`)
		if err != nil {
			return true, err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err == nil && len(ids) == 1 {
			_, _, err = operator.Undo(ctx, ids[0], true, by)
		}
		return true, err
	}
	return true, err
}
