//go:build unix

package integration_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// named gives the program's sessions a name, by which PostgreSQL tells one
// member from another.
func named(application string) func(*config.Config) {
	return func(c *config.Config) {
		dsn, err := url.Parse(c.Database.URL.Reveal())
		if err != nil {
			panic(err)
		}
		query := dsn.Query()
		query.Set("application_name", application)
		dsn.RawQuery = query.Encode()
		c.Database.URL = config.NewDatabaseURL(dsn.String())
	}
}

// gateKey is the advisory lock that a stopped member waits for.
const gateKey = 4711

// installGate puts a trigger in front of the writes to order_rows of sessions of that name.
func (s *stage) installGate(application string) {
	s.t.Helper()
	s.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF current_setting('application_name') = '` + application + `' THEN
				PERFORM pg_advisory_xact_lock_shared(4711);
			END IF;
			RETURN NULL;
		END $$`)
	s.exec(`CREATE TRIGGER gate BEFORE INSERT OR UPDATE ON order_rows FOR EACH STATEMENT EXECUTE FUNCTION gate()`)
}

// closeGate stops the writers that the gate is for, until opened.
func (s *stage) closeGate() (open func()) {
	s.t.Helper()
	conn, err := s.pool.Acquire(s.t.Context())
	must(s.t, err)
	_, err = conn.Exec(s.t.Context(), `SELECT pg_advisory_lock($1)`, gateKey)
	must(s.t, err)
	return func() {
		s.t.Helper()
		_, err := conn.Exec(s.t.Context(), `SELECT pg_advisory_unlock($1)`, gateKey)
		must(s.t, err)
		conn.Release()
	}
}

// awaitAtGate waits until a writer stands before the gate.
func (s *stage) awaitAtGate() {
	s.t.Helper()
	s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
}

// foldSequence decides the stage's whole topic in the order given, which may
// interleave partitions.
func (s *stage) foldSequence(sequence []*kgo.Record) *reference.Result {
	s.t.Helper()
	type at struct {
		partition int32
		offset    int64
	}
	stored := map[at]projection.Record{}
	for _, r := range s.read() {
		stored[at{r.Partition, r.Offset}] = r
	}
	if len(stored) != len(sequence) {
		s.t.Fatalf("the topic holds %d records, the sequence %d", len(stored), len(sequence))
	}
	var records []projection.Record
	for _, r := range sequence {
		records = append(records, stored[at{r.Partition, r.Offset}])
	}
	return s.foldOf(records)
}

// awaitPartitions waits until each program owns one of two partitions, and returns
// which, in the order of the programs.
func awaitPartitions(t testing.TB, programs ...*program) []int32 {
	t.Helper()
	owned := make([]int32, len(programs))
	testenv.Await(t, patience, func() (bool, string) {
		for i, p := range programs {
			status := p.Consumer().Status()
			if len(status.Partitions) != 1 || !status.Partitions[0].Assigned {
				return false, fmt.Sprintf("program %d: %+v", i, status.Partitions)
			}
			owned[i] = status.Partitions[0].Partition
		}
		return true, ""
	})
	return owned
}

// One order of a batch changes between what the batch read and what it writes,
// by another member or by hand. The rest commits, the one is decided again, and
// every record has exactly one outcome.
func TestALostGuardLosesNothing(t *testing.T) {
	t.Parallel()
	const batch = 10
	id := func(i int) string { return fmt.Sprintf("o-%02d", i) }
	other := id(5)
	amend := func(version int64, eventID, amount string) *kgo.Record {
		return record(other, eventWithID(eventID, other, version, "OrderAmended.v1", `{"total":{"amount":"`+amount+`","currency":"EUR"}}`))
	}
	for _, c := range []struct {
		name string
		// before are earlier events, batch are those of the member that is stopped, meanwhile
		// those that the other member gets at that time.
		before, batch func(i int) *kgo.Record
		meanwhile     []*kgo.Record
		change        string // by hand
		isThere       string // says that meanwhile is applied
		want          string // version, status and amount of the order afterwards
		after         []*kgo.Record
	}{
		{
			name: "revision raised", before: func(i int) *kgo.Record { return created(id(i)) }, batch: func(i int) *kgo.Record { return amended(id(i), 2, "5.00") },
			change: `UPDATE order_rows SET revision = revision + 1 WHERE order_id = 'o-05'`, want: "2 ok 500",
		},
		{
			name: "same event", before: func(i int) *kgo.Record { return created(id(i)) }, batch: func(i int) *kgo.Record { return amended(id(i), 2, "5.00") },
			meanwhile: []*kgo.Record{amended(other, 2, "5.00")}, isThere: `version = 2`, want: "2 ok 500",
		},
		{
			name: "same event and the next ones", before: func(i int) *kgo.Record { return created(id(i)) }, batch: func(i int) *kgo.Record { return amended(id(i), 2, "5.00") },
			meanwhile: []*kgo.Record{amended(other, 2, "5.00"), amended(other, 3, "6.00"), amended(other, 4, "7.00")}, isThere: `version = 4`, want: "4 ok 700",
		},
		{
			name: "another event of that version", before: func(i int) *kgo.Record { return created(id(i)) }, batch: func(i int) *kgo.Record { return amended(id(i), 2, "5.00") },
			meanwhile: []*kgo.Record{amend(2, "another", "8.00")}, isThere: `version = 2`, want: "2 ok 800",
		},
		{
			name: "a later event parked", before: func(i int) *kgo.Record { return created(id(i)) }, batch: func(i int) *kgo.Record { return amended(id(i), 2, "5.00") },
			meanwhile: []*kgo.Record{amended(other, 3, "6.00"), amended(other, 5, "9.00")}, isThere: `projection_status = 'waiting'`, want: "3 waiting 600",
			after: []*kgo.Record{amended(other, 4, "7.00")},
		},
		{
			name: "same first event", batch: func(i int) *kgo.Record { return created(id(i)) },
			meanwhile: []*kgo.Record{created(other)}, isThere: `version = 1`, want: "1 ok 1999",
		},
		{
			name: "another first event", batch: func(i int) *kgo.Record { return created(id(i)) },
			meanwhile: []*kgo.Record{record(other, eventWithID("another", other, 1, "OrderCreated.v1", `{"customer_id":"c-2","total":{"amount":"1.00","currency":"EUR"}}`))},
			isThere:   `version = 1`, want: "1 ok 100",
		},
		{
			name: "a later event of a new order parked", batch: func(i int) *kgo.Record { return created(id(i)) },
			meanwhile: []*kgo.Record{amended(other, 2, "5.00"), amended(other, 4, "5.00")}, isThere: `projection_status = 'waiting'`, want: "2 waiting 500",
			after: []*kgo.Record{amended(other, 3, "7.00")},
		},
		{
			name: "a letter that blocks a new order", batch: func(i int) *kgo.Record { return created(id(i)) },
			meanwhile: []*kgo.Record{paid(other, 1)}, isThere: `projection_status = 'blocked'`, want: "1 ok 1999",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, stageConfig{Partitions: 2})
			s.installGate("held")
			held, free := s.start(named("held")), s.start(named("free"))
			owned := awaitPartitions(t, held, free)
			produce := func(partition int32, records []*kgo.Record) []*kgo.Record {
				for _, r := range records {
					on(partition, r)
				}
				s.produce(records...)
				return records
			}
			all := func(make func(i int) *kgo.Record) (records []*kgo.Record) {
				if make == nil {
					return nil
				}
				for i := range batch {
					records = append(records, make(i))
				}
				return records
			}

			var sequence []*kgo.Record
			if c.before != nil {
				sequence = produce(owned[0], all(c.before))
				s.awaitDrained()
			}
			open := s.closeGate()
			stopped := produce(owned[0], all(c.batch))
			s.awaitAtGate()
			if c.change != "" {
				s.exec(c.change)
			}
			if c.meanwhile != nil {
				sequence = slices.Concat(sequence, produce(owned[1], c.meanwhile))
				s.awaitSQL(`SELECT EXISTS (SELECT FROM order_rows WHERE order_id = $1 AND `+c.isThere+`)`, other)
			}
			open()
			sequence = slices.Concat(sequence, stopped)
			s.awaitDrained()
			s.compare(s.foldSequence(sequence))
			got := ask[string](s, `SELECT format('%s %s %s', version, projection_status, total_minor) FROM orders WHERE order_id = $1`, other)
			if got != c.want {
				t.Errorf("the order is %q, wanted %q", got, c.want)
			}
			if c.after != nil { // nothing that was parked is forgotten
				sequence = slices.Concat(sequence, produce(owned[0], c.after))
				s.awaitDrained()
				s.compare(s.foldSequence(sequence))
			}
		})
	}
}
