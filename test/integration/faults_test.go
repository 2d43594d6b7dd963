//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// recovery is how soon the program works again after an outage without a
// restart, and how soon the partitions of a killed member are read again.
const recovery = 15 * time.Second

// watchRows makes the database note every order and every watermark that goes
// back, and fails the test at its end when there is one. A final state that is right does
// not show that.
func (s *stage) watchRows() {
	s.t.Helper()
	s.noteRows()
	s.t.Cleanup(s.nothingWentBack)
}

// noteRows is watchRows for a database that is gone before the end of the
// test, which asks nothingWentBack itself.
func (s *stage) noteRows() {
	s.t.Helper()
	s.exec(`CREATE TABLE went_back (what text NOT NULL);
		CREATE FUNCTION note_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO went_back VALUES (format('order %s from version %s to %s', old.order_id, old.version, new.version)); RETURN NULL;
		END $$;
		CREATE TRIGGER went_back AFTER UPDATE ON order_rows FOR EACH ROW WHEN (new.version < old.version) EXECUTE FUNCTION note_order();
		CREATE FUNCTION note_watermark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO went_back VALUES (format('watermark of partition %s from %s to %s', old.kafka_partition, old.next_offset, new.next_offset)); RETURN NULL;
		END $$;
		CREATE TRIGGER went_back AFTER UPDATE ON projection_watermarks FOR EACH ROW WHEN (new.next_offset < old.next_offset)
			EXECUTE FUNCTION note_watermark()`)
}

func (s *stage) nothingWentBack() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT what FROM went_back LIMIT 20`)
	must(s.t, err)
	went, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(s.t, err)
	for _, what := range went {
		s.t.Errorf("went back: %s", what)
	}
}

// flow is traffic that is published meanwhile.
type flow struct {
	t       testing.TB
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error
	summary publish.Summary
}

// flow publishes generated traffic in the background, at most rate records per
// second.
func (s *stage) flow(traffic generate.Config, rate float64) *flow {
	s.t.Helper()
	stream, err := generate.New(traffic)
	must(s.t, err)
	publisher, err := publish.Open(s.t.Context(), publish.Config{
		Client: kafkaio.ClientConfig{SeedBrokers: s.brokers}, Topic: s.topic, Logger: slog.New(slog.DiscardHandler),
	})
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{t: s.t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer publisher.Close()
		f.summary, f.err = publisher.Run(ctx, stream, rate, nil)
	}()
	s.t.Cleanup(func() { cancel(); <-f.ended })
	return f
}

// generated returns generated records, each with the partition of its key
// among that many, to be produced in parts.
func (s *stage) generated(traffic generate.Config, partitions int) []*kgo.Record {
	s.t.Helper()
	stream, err := generate.New(traffic)
	must(s.t, err)
	place := kgo.StickyKeyPartitioner(nil).ForTopic(s.topic)
	var records []*kgo.Record
	for g := range stream.All() {
		r := &kgo.Record{Key: g.PartitionKey, Value: g.Value, Headers: []kgo.RecordHeader{{Key: generate.HeaderGenerator}}}
		r.Partition = int32(place.Partition(r, partitions))
		r.Key = g.Key
		records = append(records, r)
	}
	return records
}

// stop ends the traffic, which must not have ended before: then what a test did
// would not have been under load. What is in the topic is what the test is judged by.
func (f *flow) stop() {
	f.t.Helper()
	select {
	case <-f.ended:
		f.t.Errorf("the traffic ended too early, after %d records: %v", f.summary.Records, f.err)
	default:
	}
	f.cancel()
	<-f.ended
}

// process is the program as a process of its own.
type process struct {
	*testenv.Process
	t testing.TB
}

// spawn is startProcess with a view on the process's metrics.
func (s *stage) spawn(args ...string) *process {
	s.t.Helper()
	return &process{Process: s.startProcess(args...), t: s.t}
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// HTTPAddr is where the process listens, once it does.
func (p *process) HTTPAddr() string {
	p.t.Helper()
	var address string
	testenv.Await(p.t, patience, func() (bool, string) {
		if m := listening.FindStringSubmatch(p.Stderr()); m != nil {
			address = m[1]
		}
		return address != "", "the process does not listen:\n" + p.Stderr()
	})
	return address
}

// An instance is the program, in this process or in one of its own.
type instance interface{ HTTPAddr() string }

// metricOf adds up the series of a metric whose labels contain all of the given
// pairs, such as `partition="1"`. ok is false when there is none, or no answer.
func metricOf(p instance, name string, labels ...string) (sum float64, ok bool) {
	status, body := get(p.HTTPAddr(), "/metrics")
	if status != 200 {
		return 0, false
	}
lines:
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(series, "{"); n != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err == nil {
			sum, ok = sum+v, true
		}
	}
	return sum, ok
}

// awaitMetric waits until a metric satisfies a condition.
func awaitMetric(t testing.TB, p instance, is func(float64) bool, name string, labels ...string) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		v, ok := metricOf(p, name, labels...)
		return ok && is(v), fmt.Sprintf("%s%v is %v (there: %v)", name, labels, v, ok)
	})
}

// owned returns how many partitions a program reads, as far as it knows.
func owned(p instance) int {
	_, body := get(p.HTTPAddr(), "/metrics")
	return strings.Count(body, "\norderprojector_consumer_position_offset{")
}

// awaitOwned waits until a program reads that many partitions.
func awaitOwned(t testing.TB, p instance, n int) {
	t.Helper()
	awaitOwnedWithin(t, p, n, patience)
}

func awaitOwnedWithin(t testing.TB, p instance, n int, timeout time.Duration) {
	t.Helper()
	testenv.Await(t, timeout, func() (bool, string) {
		got := owned(p)
		return got == n, fmt.Sprintf("%d partitions are owned, not %d", got, n)
	})
}

// marks returns the watermarks, which must be readable.
func (s *stage) marks() map[int32]int64 {
	s.t.Helper()
	marks, err := s.watermarks(s.t.Context())
	must(s.t, err)
	return marks
}

// ends returns the last stable offset of each partition.
func (s *stage) ends() map[int32]int64 {
	s.t.Helper()
	listed, err := s.admin.ListCommittedOffsets(s.t.Context(), s.topic)
	must(s.t, err)
	must(s.t, listed.Error())
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// awaitMarks waits until every watermark is at or above the given one, and
// returns how long that took.
func (s *stage) awaitMarks(timeout time.Duration, at map[int32]int64) time.Duration {
	s.t.Helper()
	began := time.Now()
	testenv.Await(s.t, timeout, func() (bool, string) {
		marks, err := s.watermarks(s.t.Context())
		if err != nil {
			return false, err.Error()
		}
		for partition, want := range at {
			if marks[partition] < want {
				return false, fmt.Sprintf("watermark of partition %d is %d, not %d", partition, marks[partition], want)
			}
		}
		return true, ""
	})
	return time.Since(began)
}

// committed returns the group's committed offsets.
func (s *stage) committed() map[int32]int64 {
	s.t.Helper()
	offsets, err := s.admin.FetchOffsets(s.t.Context(), s.group)
	must(s.t, err)
	at := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == s.topic && o.Err == nil && o.At >= 0 {
			at[o.Partition] = o.At
		}
	})
	return at
}

// commit commits offsets with Kafka's own tools.
func (s *stage) commit(to map[int32]int64) {
	s.t.Helper()
	var offsets kadm.Offsets
	for partition, at := range to {
		offsets.AddOffset(s.topic, partition, at, -1)
	}
	// A client of its own: commits name the topic by its ID, and a client that
	// has seen the topic before it was created anew still has the old one.
	must(s.t, testenv.Admin(s.t, s.brokers).CommitAllOffsets(s.t.Context(), s.group, offsets))
}

// counts adds up the outcomes of all partitions.
func (s *stage) counts() projection.Counts {
	s.t.Helper()
	var c projection.Counts
	into := make([]any, len(c))
	columns := make([]string, len(c))
	for i, o := range projection.Outcomes() {
		into[i], columns[i] = &c[i], "coalesce(sum("+o.String()+"), 0)::bigint"
	}
	must(s.t, s.pool.QueryRow(s.t.Context(), "SELECT "+strings.Join(columns, ", ")+
		" FROM projection_watermarks WHERE consumer_group = $1", s.group).Scan(into...))
	return c
}

// fingerprint changes with every row that is written, also when what is
// written is what was there.
func (s *stage) fingerprint() string {
	s.t.Helper()
	return ask[string](s, `SELECT concat_ws(' ',
		(SELECT md5(string_agg(concat(order_id, ' ', xmin, ' ', ctid), ',' ORDER BY order_id)) FROM order_rows),
		(SELECT md5(string_agg(concat(order_id, ' ', version, ' ', xmin, ' ', ctid), ',' ORDER BY order_id, version)) FROM order_ledger_archive),
		(SELECT md5(string_agg(concat(order_id, ' ', version, ' ', event_id, ' ', xmin, ' ', ctid), ',' ORDER BY order_id, version, event_id, digest)) FROM parked_events),
		(SELECT md5(string_agg(concat(id, ' ', xmin, ' ', ctid), ',' ORDER BY id)) FROM dead_letters))`)
}

// holdOrders locks rows of orders, as an operator's forgotten transaction does,
// until the returned function is called.
func (s *stage) holdOrders(ids ...string) (release func()) {
	s.t.Helper()
	return s.hold(`SELECT FROM order_rows WHERE order_id = ANY ($1) FOR UPDATE`, ids)
}

// holdAllOrders locks the table.
func (s *stage) holdAllOrders() (release func()) {
	s.t.Helper()
	return s.hold(`LOCK TABLE order_rows IN EXCLUSIVE MODE`)
}

func (s *stage) hold(sql string, args ...any) (release func()) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	must(s.t, err)
	release = func() { _ = conn.Close(context.Background()) } // which rolls back
	s.t.Cleanup(release)
	tx, err := conn.Begin(s.t.Context())
	must(s.t, err)
	_, err = tx.Exec(s.t.Context(), sql, args...)
	must(s.t, err)
	return release
}

// A member with these settings waits for a locked row for longer than a test lasts: it does not hold the record.
const (
	patientLocks      = "--database-lock-timeout=60s"
	patientStatements = "--database-statement-timeout=60s"
)

// awaitReleased waits until no record of the stage's group is held any more.
func (s *stage) awaitReleased() {
	s.t.Helper()
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM held_records WHERE consumer_group = $1)`, s.group)
}

// awaitBlocked waits until the program waits for a lock in the database.
func (s *stage) awaitBlocked() {
	s.t.Helper()
	s.awaitSQL(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'orderprojector-write' AND wait_event_type = 'Lock')`)
}
