//go:build unix

// Package integration tests the whole program against a real Kafka and a real
// PostgreSQL. Each test has a topic, a group and a database of its own, and is
// judged per event: what the program made of the topic is compared, row by row and
// count by count, with an independent fold of it.
package integration_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience is how long a test waits for what should take a second or two; the
// machine may be busy.
const patience = 60 * time.Second

// randomSeed returns the seed of a test and prints it. Every run has the same one, made of the test's name.
// ORDERPROJECTOR_TEST_SEED names another one, or "random" for one that nobody chose.
func randomSeed(t testing.TB) uint64 {
	t.Helper()
	name := fnv.New32a()
	_, _ = name.Write([]byte(t.Name()))
	seed := uint64(name.Sum32())
	switch text := os.Getenv("ORDERPROJECTOR_TEST_SEED"); text {
	case "":
	case "random":
		seed = rand.Uint64N(1 << 32)
	default:
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("seed %d (ORDERPROJECTOR_TEST_SEED=%d repeats it)", seed, seed)
	return seed
}

// stage is what one test plays on: a topic, a consumer group and a database of
// its own. It watches from the start that committed offsets neither go back
// nor pass the watermark.
type stage struct {
	t       testing.TB
	brokers []string // where the test itself produces and looks
	dsn     string   // where the test itself looks
	topic   string
	group   string
	// What the program is told: the same, until a test puts something in between.
	programBrokers []string
	programDSN     string

	pool    *pgxpool.Pool // the test's own eyes on the database
	admin   *kadm.Client
	reader  *kafkaio.TopicReader
	kafka   *kgo.Client // produces to exactly the partition that a record names
	sampler *testenv.OffsetSampler
}

// stageConfig names what a stage does not make itself. The zero value is a topic of one
// partition and a new database on the shared services.
type stageConfig struct {
	Partitions int32
	Topic      []string // topic parameters, key=value
	Brokers    []string
	DSN        string // of a migrated database
	// Forgiving leaves out the watching of committed offsets, for tests that break what it relies on.
	Forgiving bool
}

func newStage(t testing.TB, config stageConfig) *stage {
	t.Helper()
	s := &stage{t: t, brokers: config.Brokers, dsn: config.DSN, group: testenv.Name(t)}
	if s.brokers == nil {
		s.brokers = testenv.SharedKafka(t)
	}
	if s.dsn == "" {
		s.dsn = testenv.Database(t)
	}
	s.programBrokers, s.programDSN = s.brokers, s.dsn
	s.topic = testenv.TopicOn(t, s.brokers, max(1, config.Partitions), append([]string{"retention.ms=-1"}, config.Topic...)...)
	s.admin = testenv.Admin(t, s.brokers)

	poolConfig, err := pgxpool.ParseConfig(s.dsn)
	must(t, err)
	poolConfig.MaxConns = 6
	s.pool, err = pgxpool.NewWithConfig(t.Context(), poolConfig)
	must(t, err)
	t.Cleanup(s.pool.Close)

	s.kafka = newProducer(t, s.brokers)

	s.reader, err = kafkaio.NewTopicReader(kafkaio.ClientConfig{SeedBrokers: s.brokers}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(s.reader.Close)

	s.sampler = testenv.StartOffsetSampler(t, s.brokers, s.group, s.topic)
	if !config.Forgiving {
		s.watchCommits()
	}
	return s
}

// newProducer makes a client that produces to exactly the partition that a record names.
func newProducer(t testing.TB, brokers []string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(1<<20), kgo.ProducerLinger(0), kgo.MetadataMinAge(100*time.Millisecond))
	must(t, err)
	t.Cleanup(client.Close)
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watchCommits checks, until the end of the test, that no committed offset is
// ahead of the watermark. A watermark only grows, so it is read after the offset.
func (s *stage) watchCommits() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			committed := s.sampler.Latest()
			marks, err := s.watermarks(ctx)
			if err != nil {
				continue // the database is down, or the test is over
			}
			for partition, at := range committed {
				if at > marks[partition] {
					s.t.Errorf("%s-%d: offset %d is committed, but the watermark is %d", s.topic, partition, at, marks[partition])
				}
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
}

// watermarks returns the highest watermark of each partition.
func (s *stage) watermarks(ctx context.Context) (map[int32]int64, error) {
	rows, err := s.pool.Query(ctx, `SELECT kafka_partition, max(next_offset) FROM projection_watermarks
		WHERE consumer_group = $1 AND kafka_topic = $2 GROUP BY kafka_partition`, s.group, s.topic)
	if err != nil {
		return nil, err
	}
	marks := map[int32]int64{}
	var partition int32
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &next}, func() error { marks[partition] = next; return nil })
	return marks, err
}

// config configures the program for this stage.
func (s *stage) config() config.Config {
	cfg := config.Default()
	cfg.Kafka.BootstrapServers = s.programBrokers
	cfg.Kafka.Topic, cfg.Kafka.Group = s.topic, s.group
	cfg.Database.URL = config.NewDatabaseURL(s.programDSN)
	cfg.HTTP.Address = "127.0.0.1:0"
	return cfg
}

// program is the whole program, running in this process.
type program struct {
	*app.App
	t     testing.TB
	stop  context.CancelFunc
	ended chan struct{}
	err   error // what Run returned, once ended is closed
}

// start runs the whole program in this process until the end of the test.
func (s *stage) start(changes ...func(*config.Config)) *program {
	s.t.Helper()
	cfg := s.config()
	for _, change := range changes {
		change(&cfg)
	}
	a, err := app.New(s.t.Context(), cfg, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
	must(s.t, err)
	return s.run(a)
}

// run runs a program that was built until the end of the test.
func (s *stage) run(a *app.App) *program {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &program{App: a, t: s.t, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = a.Run(ctx)
	}()
	s.t.Cleanup(func() { stop(); <-p.ended })
	return p
}

// Stop ends the program in order and fails the test when that is not clean.
func (p *program) Stop() {
	p.t.Helper()
	p.stop()
	if err := p.wait(); err != nil {
		p.t.Errorf("the program ended with: %v", err)
	}
}

// wait returns what Run returned.
func (p *program) wait() error {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		p.t.Fatal("the program does not end")
		return nil
	}
}

// get returns the status and body of a path; status 0 while nothing answers.
func (p *program) get(path string) (int, string) { return get(p.HTTPAddr(), path) }

func get(address, path string) (int, string) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// awaitHTTP waits until a path answers with that status and text.
func (p *program) awaitHTTP(path string, status int, contains string) {
	p.t.Helper()
	testenv.Await(p.t, patience, func() (bool, string) {
		got, body := p.get(path)
		return got == status && strings.Contains(body, contains), fmt.Sprintf("%s: %d %s", path, got, body)
	})
}

// env configures a process of the program for this stage.
func (s *stage) env() []string {
	return []string{
		"KAFKA_BOOTSTRAP_SERVERS=" + strings.Join(s.programBrokers, ","), "DATABASE_URL=" + s.programDSN,
		"ORDERPROJECTOR_TOPIC=" + s.topic, "ORDERPROJECTOR_GROUP=" + s.group, "ORDERPROJECTOR_HTTP_ADDRESS=127.0.0.1:0",
	}
}

// startProcess runs the program's "run" as a process of its own.
func (s *stage) startProcess(args ...string) *testenv.Process {
	s.t.Helper()
	return testenv.StartProcess(s.t, testenv.ProcessConfig{Args: append([]string{"run"}, args...), Env: s.env()})
}

// command runs a command of the program to its end.
func (s *stage) command(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.ProcessConfig{Args: args, Env: s.env()})
	code = p.Wait(patience)
	return code, p.Stdout(), p.Stderr()
}

// produce writes records, in order, and returns when the broker has them. Partition,
// Key, Value, Headers and Timestamp are sent as they are; the others are set.
func (s *stage) produce(records ...*kgo.Record) {
	s.t.Helper()
	for _, r := range records {
		r.Topic = s.topic
	}
	must(s.t, s.kafka.ProduceSync(s.t.Context(), records...).FirstErr())
}

// record is a record for partition 0, keyed by the order.
func record(orderID, value string) *kgo.Record {
	return &kgo.Record{Key: []byte(orderID), Value: []byte(value)}
}

// on moves a record to a partition.
func on(partition int32, r *kgo.Record) *kgo.Record {
	r.Partition = partition
	return r
}

// event is an event's JSON. Its event ID is made of order and version.
func event(orderID string, version int64, typ, data string) string {
	return eventWithID(fmt.Sprintf("%s-e%d", orderID, version), orderID, version, typ, data)
}

func eventWithID(eventID, orderID string, version int64, typ, data string) string {
	return fmt.Sprintf(`{"event_id":%q,"order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:%02dZ","data":%s}`,
		eventID, orderID, typ, version, version%60, data)
}

// The events of an order of EUR 19.99 by customer c-1.

func created(orderID string) *kgo.Record {
	return record(orderID, event(orderID, 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"}}`))
}

func amended(orderID string, version int64, amount string) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderAmended.v1", `{"total":{"amount":"`+amount+`","currency":"EUR"}}`))
}

func paid(orderID string, version int64) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderPaid.v1", `{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}`))
}

func packed(orderID string, version int64) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderPacked.v1", `{}`))
}

func shipped(orderID string, version int64) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderShipped.v1", `{"carrier":"DHL","tracking_number":"t-1"}`))
}

// generate publishes generated traffic to the stage's topic.
func (s *stage) generate(traffic generate.Config) publish.Summary {
	s.t.Helper()
	s.t.Logf("traffic of seed %d", traffic.Seed)
	stream, err := generate.New(traffic)
	must(s.t, err)
	publisher, err := publish.Open(s.t.Context(), publish.Config{
		Client: kafkaio.ClientConfig{SeedBrokers: s.brokers}, Topic: s.topic, Logger: slog.New(slog.DiscardHandler),
	})
	must(s.t, err)
	defer publisher.Close()
	summary, err := publisher.Run(s.t.Context(), stream, 0, nil)
	must(s.t, err)
	return summary
}

// awaitDrained waits until every partition's watermark and committed offset
// are at its last stable offset.
func (s *stage) awaitDrained() {
	s.t.Helper()
	s.awaitDrainedWithin(patience)
}

func (s *stage) awaitDrainedWithin(timeout time.Duration) {
	s.t.Helper()
	testenv.Await(s.t, timeout, func() (bool, string) { return s.drained(s.t.Context()) })
}

func (s *stage) drained(ctx context.Context) (bool, string) {
	ranges, err := s.reader.Ranges(ctx, s.topic)
	if err != nil {
		return false, err.Error()
	}
	committed, err := s.admin.FetchOffsets(ctx, s.group)
	if err != nil {
		return false, err.Error()
	}
	var behind []string
	for _, r := range ranges {
		var mark int64
		err := s.pool.QueryRow(ctx, `SELECT coalesce(max(next_offset), -1) FROM projection_watermarks
			WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id::text = $3 AND kafka_partition = $4`,
			s.group, s.topic, r.TopicID.String(), r.Partition).Scan(&mark)
		if err != nil {
			return false, err.Error()
		}
		at := int64(-1)
		if o, ok := committed.Lookup(s.topic, r.Partition); ok && o.Err == nil {
			at = o.At
		}
		isEmpty := r.From == r.Until && at == -1
		if mark != r.Until || at != r.Until && !isEmpty {
			behind = append(behind, fmt.Sprintf("%s-%d: log ends at %d, watermark %d, committed %d", s.topic, r.Partition, r.Until, mark, at))
		}
	}
	return len(behind) == 0, strings.Join(behind, "; ")
}

// read returns the stage's whole topic, partition by partition.
func (s *stage) read() []projection.Record {
	s.t.Helper()
	var records []projection.Record
	must(s.t, s.reader.ReadTopic(s.t.Context(), s.topic, func(r projection.Record) error {
		records = append(records, r)
		return nil
	}))
	return records
}

// fold decides the stage's whole topic by the rules alone.
func (s *stage) fold() *reference.Result {
	s.t.Helper()
	return s.foldOf(s.read())
}

// foldOf decides records by the rules and by what operators decided alone, in their order, up to the end that the topic has now.
func (s *stage) foldOf(records []projection.Record) *reference.Result {
	s.t.Helper()
	fold := reference.NewFold()
	decisions, err := compare.Decisions(s.t.Context(), s.pool)
	must(s.t, err)
	for _, d := range decisions {
		fold.Decide(d)
	}
	for _, r := range records {
		fold.Add(r)
	}
	ranges, err := s.reader.Ranges(s.t.Context(), s.topic)
	must(s.t, err)
	for _, r := range ranges {
		fold.Advance(r.TopicPartition, r.Until)
	}
	return fold.Result()
}

// awaitNoneHeld waits until the program has worked off what it holds.
func (s *stage) awaitNoneHeld() {
	s.t.Helper()
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM held_records WHERE consumer_group = $1)`, s.group)
}

// judge compares everything in the database with the fold of the whole topic, once nothing is held any more.
func (s *stage) judge() *reference.Result {
	s.t.Helper()
	s.awaitNoneHeld()
	result := s.fold()
	s.compare(result)
	return result
}

// compare compares everything in the database with a fold.
func (s *stage) compare(result *reference.Result) {
	s.t.Helper()
	report, err := compare.Compare(s.t.Context(), result, s.pool, s.group)
	must(s.t, err)
	for i, d := range report.Differences {
		if i == 20 {
			s.t.Errorf("and %d more differences", report.Total-i)
			break
		}
		s.t.Error(d)
	}
}

// ask returns one value from the database.
func ask[T any](s *stage, sql string, args ...any) T {
	s.t.Helper()
	var v T
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// exec changes the database behind the program's back.
func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// awaitSQL waits until a query that returns one boolean says true.
func (s *stage) awaitSQL(sql string, args ...any) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		var ok bool
		err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&ok)
		return ok, fmt.Sprintf("%s: %v %v", sql, ok, err)
	})
}
