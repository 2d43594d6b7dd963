//go:build unix

package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// Every event comes twice, in two partitions, to two programs at once: it
// applies once and is a duplicate once (B28).
func TestDuplicatesInTwoPartitionsApplyOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	small := func(c *config.Config) { c.Projection.BatchMaxRecords = 10 }
	awaitPartitions(t, s.start(small), s.start(small))

	const orders = 300
	lives := func(partition int32, id string) []*kgo.Record {
		return []*kgo.Record{on(partition, created(id)), on(partition, paid(id, 2)), on(partition, packed(id, 3)), on(partition, shipped(id, 4))}
	}
	var ahead, behind []*kgo.Record
	for i := range orders {
		// The same orders in opposite order, so that the two meet in the middle.
		ahead = append(ahead, lives(0, fmt.Sprintf("o-%03d", i))...)
		behind = append(behind, lives(1, fmt.Sprintf("o-%03d", orders-1-i))...)
	}
	var both []*kgo.Record
	for i := range ahead {
		both = append(both, ahead[i], behind[i])
	}
	s.produce(both...)
	s.awaitDrained()
	s.compare(s.foldByLedger())
	if applied, duplicate := s.counted("applied"), s.counted("duplicate"); applied != 4*orders || duplicate != 4*orders {
		t.Errorf("%d applied and %d duplicates, wanted %d each", applied, duplicate, 4*orders)
	}
	if n := ask[int](s, `SELECT count(DISTINCT kafka_partition) FROM order_events`); n != 2 {
		t.Errorf("the programs did not work side by side")
	}
}

// foldByLedger folds a topic in which orders are in several partitions. It
// interleaves them as the ledger says they were: an event that applied comes
// before its repetitions. That there is such an interleaving is half of the proof.
func (s *stage) foldByLedger() *reference.Result {
	s.t.Helper()
	type version struct {
		orderID string
		version int64
	}
	type at struct {
		partition int32
		offset    int64
	}
	ledger := map[version]at{}
	rows, err := s.pool.Query(s.t.Context(), `SELECT order_id, version, kafka_partition, kafka_offset FROM order_events`)
	must(s.t, err)
	for rows.Next() {
		var v version
		var a at
		must(s.t, rows.Scan(&v.orderID, &v.version, &a.partition, &a.offset))
		ledger[v] = a
	}
	must(s.t, rows.Err())

	queues := map[int32][]projection.Record{}
	total := 0
	for _, r := range s.read() {
		queues[r.Partition] = append(queues[r.Partition], r)
		total++
	}
	done := map[string]int64{} // versions by order
	var sequence []projection.Record
	for len(sequence) < total {
		progress := false
		for partition, queue := range queues {
			for len(queue) > 0 {
				var v struct {
					OrderID string `json:"order_id"`
					Version int64  `json:"version"`
				}
				must(s.t, json.Unmarshal(queue[0].Value, &v))
				isApplied := ledger[version{v.OrderID, v.Version}] == at{queue[0].Partition, queue[0].Offset}
				if isApplied && done[v.OrderID] != v.Version-1 || !isApplied && done[v.OrderID] < v.Version {
					break // something of another partition comes before it
				}
				if isApplied {
					done[v.OrderID] = v.Version
				}
				sequence = append(sequence, queue[0])
				queue, progress = queue[1:], true
			}
			queues[partition] = queue
		}
		if !progress {
			s.t.Fatalf("no order of events explains the ledger: stuck after %d of %d records", len(sequence), total)
		}
	}
	return s.foldOf(sequence)
}

// One poll brings 70 events of one order among those of 30 others (B29).
func TestManyEventsOfOneOrderInOnePoll(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	var records []*kgo.Record
	for i := range 100 {
		switch {
		case i == 0:
			records = append(records, created("hot"))
		case i%10 < 7:
			records = append(records, amended("hot", int64(i/10*7+i%10+1), fmt.Sprintf("%d.00", i)))
		default:
			records = append(records, created(fmt.Sprintf("o-%02d", i)))
		}
	}
	s.produce(records...)
	p := s.start()
	s.awaitDrained()
	result := s.judge()
	if hot := result.Order("hot"); hot == nil || hot.Version != 70 {
		t.Errorf("the order is %+v", hot)
	}
	if got := metric(t, p.Registry(), "orderprojector_events_total", "outcome=applied"); got != 100 {
		t.Errorf("%v events applied, wanted 100", got)
	}
	if n := ask[int](s, `SELECT count(*) FROM order_ledger_archive`); n != 6 {
		t.Errorf("%d entries are archived, wanted 6", n)
	}
}

// Catching up in polls of 20,000 records of as many orders takes statements of
// any size (B29).
func TestACatchUpPollOfTwentyThousand(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	const orders = 16_000
	var records []*kgo.Record
	for i := range orders {
		records = append(records, created(fmt.Sprintf("o-%05d", i)))
	}
	for i := range orders / 16 { // repeats and what waits and what is refused, in the same poll
		id := fmt.Sprintf("o-%05d", i)
		records = append(records, created(id), packed(id, 4), paid(fmt.Sprintf("o-%05d", i+orders/2), 7), record(id, "{}"))
	}
	s.produce(records...)
	s.start(func(c *config.Config) { c.Projection.BatchMaxRecords, c.Projection.BatchMaxBytes = 100_000, 64<<20 })
	s.awaitDrained()
	s.judge()
}

// A deadlock is nobody's fault but bad luck: the batch is tried again, and no
// letter comes of it (B29).
func TestADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.start(func(c *config.Config) {
		dsn, err := url.Parse(c.Database.URL.Reveal())
		must(t, err)
		query := dsn.Query()
		query.Set("deadlock_timeout", "2s") // time enough for the test to close the circle
		dsn.RawQuery = query.Encode()
		c.Database.URL = config.NewDatabaseURL(dsn.String())
	})
	s.produce(created("a"), created("b"))
	s.awaitDrained()

	tx, err := s.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `SET LOCAL deadlock_timeout = '1h'`)
	must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM order_rows WHERE order_id = 'b' FOR UPDATE`)
	must(t, err)
	s.produce(packed("a", 3), packed("b", 3)) // both wait, which takes locks: first a's, then b's
	s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'orderprojector-write' AND wait_event_type = 'Lock')`)
	_, err = tx.Exec(t.Context(), `SELECT FROM order_rows WHERE order_id = 'a' FOR UPDATE`)
	must(t, err) // granted once the program's transaction has been ended
	must(t, tx.Commit(t.Context()))
	s.awaitDrained()
	s.judge()
	if got := metric(t, p.Registry(), "orderprojector_retries_total", "class=transient"); got < 1 {
		t.Errorf("no batch was tried again")
	}
	if n := ask[int](s, `SELECT count(*) FROM dead_letters`); n != 0 {
		t.Errorf("%d letters", n)
	}
}
