//go:build unix

package integration_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// smallTraffic is a few seconds of every fault.
func smallTraffic(seed uint64) generate.Config {
	return generate.Config{Seed: seed, Orders: 200, Rates: generate.Faulty(), Delay: 50, Long: 50, Amendments: 90}
}

// Between two runs somebody deletes the group's offsets, and then the group.
func TestLogGroupDeleted(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	s.generate(smallTraffic(seed))
	p := s.start()
	s.awaitDrained()
	p.Stop()
	for name, remove := range map[string]func() error{
		"offsets": func() error {
			var set kadm.TopicsSet
			set.Add(s.topic, 0, 1)
			deleted, err := s.admin.DeleteOffsets(t.Context(), s.group, set)
			return errors.Join(err, deleted.Error())
		},
		"group": func() error {
			deleted, err := s.admin.DeleteGroup(t.Context(), s.group)
			return errors.Join(err, deleted.Err)
		},
	} {
		s.awaitNoMembers()
		s.sampler.During(func() {
			if err := remove(); err != nil {
				t.Fatalf("deleting the %s: %v", name, err)
			}
		})
		if at := s.committed(); len(at) > 0 {
			t.Fatalf("after deleting the %s, %v is committed", name, at)
		}
		before := s.fingerprint()
		p := s.start()
		s.awaitDrained() // the commits are there again
		if again, _ := metricOf(p, "orderprojector_reread_records_total"); again != 0 {
			t.Errorf("after deleting the %s, %v records were read again", name, again)
		}
		if s.fingerprint() != before {
			t.Errorf("after deleting the %s, rows were written", name)
		}
		s.produce(created(name+"-1"), on(1, created(name+"-2")))
		s.awaitDrained()
		s.judge()
		p.Stop()
	}
}

// A rewind with Kafka's tools is followed, and touches no row.
func TestLogRewound(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	s.generate(smallTraffic(seed))
	p := s.start()
	s.awaitDrained()
	p.Stop()
	before, counts := s.fingerprint(), s.counts()
	ends := s.ends()
	s.rewind(map[int32]int64{0: 3, 1: 0})

	p = s.start()
	s.awaitDrained()
	want := float64(ends[0] - 3 + ends[1])
	if again, _ := metricOf(p, "orderprojector_reread_records_total"); again != want {
		t.Errorf("%v records were read again, not %v", again, want)
	}
	if s.fingerprint() != before {
		t.Error("rows were written")
	}
	if now := s.counts(); now != counts {
		t.Errorf("counts %v, before %v", now, counts)
	}
	s.judge()
	p.Stop()

	// Rewound to records that the log has not any more: they are applied, nothing is lost.
	result := s.fold()
	s.rewind(map[int32]int64{0: 5, 1: 5})
	s.deleteBefore(0, 100)
	p = s.start()
	s.awaitDrained()
	if lost, _ := metricOf(p, "orderprojector_data_loss_total"); lost != 0 {
		t.Errorf("%v lost records are reported", lost)
	}
	if s.fingerprint() != before {
		t.Error("rows were written")
	}
	s.compare(result)
}

// Somebody moves the group's offset forward with Kafka's tools: it is not
// followed, and it is reported.
func TestLogCommittedAhead(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2, Forgiving: true})
	s.watchRows()
	s.generate(smallTraffic(seed))
	p := s.start()
	s.awaitDrained()
	p.Stop()
	marks := s.marks()
	s.generate(smallTraffic(seed + 1))
	ahead := s.ends()
	s.rewind(ahead)

	release := s.holdAllOrders()
	process := s.spawn()
	for partition, at := range ahead {
		process.AwaitOutput(patience, fmt.Sprintf("partition=%d committed=%d watermark=%d", partition, at, marks[partition]))
		label := fmt.Sprintf(`partition="%d"`, partition)
		awaitMetric(t, process, func(v float64) bool { return v == float64(at-marks[partition]) }, "orderprojector_committed_ahead_records", label)
		awaitMetric(t, process, func(v float64) bool { return v == 1 }, "orderprojector_committed_ahead", label)
	}
	if at := s.committed(); !maps.Equal(at, ahead) {
		t.Errorf("committed %v, set were %v", at, ahead)
	}
	release()
	s.awaitDrained()
	s.judge()
	s.produce(created("x"), on(1, created("y"))) // and beyond, offsets are committed again
	s.awaitDrained()
	awaitMetric(t, process, func(v float64) bool { return v == 0 }, "orderprojector_committed_ahead")
	s.judge()
}

// A topic that is deleted and created anew is another log. What is in the
// database of the old one stays.

func TestLogTopicRecreatedUnderAMember(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 2, Forgiving: true})
	s.watchRows()
	p := s.spawn()
	s.generate(smallTraffic(seed))
	s.awaitDrained()
	old := s.read()
	s.recreate(2)
	began := time.Now()
	s.generate(smallTraffic(seed + 1))
	s.produce(created("n-1"), on(1, created("n-2")))
	s.awaitDrained()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the new topic was read after %v", took)
	}
	s.compare(s.foldOf(append(old, s.read()...)))
	if lines := strings.Count(p.Stderr(), "\n"); lines > 60 {
		t.Errorf("%d lines are logged", lines)
	}
	if again, _ := metricOf(p, "orderprojector_reread_records_total"); again != 0 {
		t.Errorf("%v records count as read again", again)
	}
}

func TestLogTopicRecreatedBetweenRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Forgiving: true})
	s.watchRows()
	var fifty []*kgo.Record
	for i := range 50 {
		fifty = append(fifty, created(fmt.Sprintf("old-%d", i)))
	}
	s.produce(fifty...)
	p := s.start()
	s.awaitDrained()
	p.Stop()
	old := s.read()
	s.awaitNoMembers()
	s.recreate(1)
	s.produce(created("new-0"), created("new-1"), created("new-2"), created("new-3"), paid("old-7", 2))
	// The broker forgets the group's offsets with the topic; a restored
	// cluster or a slow broker may not have.
	var process *process
	s.sampler.During(func() {
		s.commit(map[int32]int64{0: 50})
		process = s.spawn()
		s.awaitDrained()
	})
	process.AwaitOutput(patience, "the topic was created anew")
	s.compare(s.foldOf(append(old, s.read()...)))
	if c := s.counts(); c[projection.Duplicate] != 0 || c[projection.Applied] != 55 {
		t.Errorf("counts %v", c)
	}
	// The old log's coordinates name other records now: an event that looks
	// like an old one, and is not the same, cannot be compared any more.
	s.produce(record("old-7", strings.Replace(string(created("old-7").Value), "19.99", "20.00", 1)))
	s.awaitDrained()
	if detail := ask[string](s, `SELECT detail FROM dead_letters WHERE reason = 'conflict'`); !strings.Contains(detail, "is gone") {
		t.Errorf("detail %q", detail)
	}
	s.compare(s.foldOf(append(old, s.read()...)))
}

// recreate deletes the stage's topic and creates one of the same name.
func (s *stage) recreate(partitions int32) {
	s.t.Helper()
	s.sampler.During(func() {
		deleted, err := s.admin.DeleteTopics(s.t.Context(), s.topic)
		must(s.t, err)
		must(s.t, deleted.Error())
		testenv.Await(s.t, patience, func() (bool, string) {
			created, err := s.admin.CreateTopic(s.t.Context(), partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, s.topic)
			return err == nil && created.Err == nil, fmt.Sprint("creating the topic anew: ", err, created.Err)
		})
		// A producer of before knows the old topic.
		s.kafka = newProducer(s.t, s.brokers)
		s.awaitPartitions(int(partitions))
		testenv.Await(s.t, patience, func() (bool, string) { // the broker forgets the group's offsets in its own time
			at := s.committed()
			return len(at) == 0, fmt.Sprintf("committed %v", at)
		})
	})
}

// Records are removed from the log before they were read.
func TestLogRecordsDeleted(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"halt", "exit", "continue"} {
		t.Run(policy, func(t *testing.T) {
			s := newStage(t, stageConfig{Partitions: 2})
			s.watchRows()
			p := s.spawn("--instance-id=one", "--on-data-loss="+policy, "--batch-max-bytes=128KiB")
			s.produce(created("held"), on(1, created("other")))
			s.awaitDrained()
			release := s.holdAllOrders()
			// More than is fetched ahead while the database is held (8 MiB).
			padding := strings.Repeat("p", 100_000)
			for i := range 7 {
				var hundred []*kgo.Record
				for j := range 20 {
					id := fmt.Sprintf("big-%d-%d", i, j)
					hundred = append(hundred, record(id, event(id, 1, "OrderCreated.v1",
						fmt.Sprintf(`{"customer_id":"c","total":{"amount":"1","currency":"EUR"},"padding":"%d%s"}`, j, padding))))
				}
				s.produce(hundred...)
			}
			s.produce(paid("held", 2), created("last"))
			all := s.read()
			end := s.ends()[0]
			const left = 2
			s.awaitBlocked()
			s.deleteBefore(0, end-left)
			release()
			s.produce(on(1, paid("other", 2)))

			lost := float64(0)
			switch policy {
			case "exit":
				if code := p.Wait(patience); code != 1 {
					t.Errorf("exit code %d", code)
				}
				if !strings.Contains(p.Stderr(), "records were removed from the log before they were read") {
					t.Errorf("it says:\n%s", p.Stderr())
				}
			default:
				awaitMetric(t, p, func(v float64) bool { lost = v; return v > 0 }, "orderprojector_data_loss_total")
			}
			mark := s.marks()[0]
			switch policy {
			case "halt":
				awaitMetric(t, p, func(v float64) bool { return v == 1 }, "orderprojector_partition_halted", `partition="0"`)
				awaitStatus(t, p, "/healthz/consumption", 503)
				s.awaitMarks(patience, map[int32]int64{1: 2}) // the other partition goes on
				if mark+int64(lost) != end-left {
					t.Errorf("watermark %d, lost %v, log start %d", mark, lost, end-left)
				}
				fallthrough
			case "exit":
				if at := s.committed()[0]; at > mark {
					t.Errorf("offset %d is committed, watermark %d", at, mark)
				}
				p.Kill()
				p = s.spawn("--instance-id=one", "--on-data-loss=continue") // the operator decides
			}
			awaitMetric(t, p, func(v float64) bool { lost = v; return v > 0 }, "orderprojector_data_loss_total")
			s.awaitDrained()
			stored := ask[int64](s, `SELECT sum(lost_offsets)::bigint FROM projection_watermarks`)
			if float64(stored) != lost || stored == 0 {
				t.Errorf("%d lost offsets are stored, %v were counted", stored, lost)
			}
			p.AwaitOutput(patience, fmt.Sprintf("to=%d records=%d", end-left, stored))
			all = slices.DeleteFunc(all, func(r projection.Record) bool {
				return r.Partition == 0 && r.Offset >= end-left-stored && r.Offset < end-left
			})
			all = append(all, s.since(1, 1)...)
			s.compare(s.foldOf(all))
		})
	}
}

// An operator's skip brings a halted partition back without a restart.
func TestLogHaltedPartitionFollowsASkip(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 1})
	p := s.start()
	s.produce(created("a"))
	s.awaitDrained()
	p.Stop()
	s.awaitNoMembers()
	s.produce(created("lost"), paid("a", 2))
	s.deleteBefore(0, 3)
	process := s.spawn()
	awaitMetric(t, process, func(v float64) bool { return v == 1 }, "orderprojector_partition_halted", `partition="0"`)
	s.produce(created("b"))
	if code, out, said := s.command("offsets", "skip", "--partition", "0", "--to", "3", "--comment", "gone for good", "--execute"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, said)
	}
	s.awaitDrained()
	awaitMetric(t, process, func(v float64) bool { return v == 0 }, "orderprojector_partition_halted", `partition="0"`)
	if n := ask[int64](s, `SELECT count(*) FROM orders WHERE order_id = 'b'`); n != 1 {
		t.Error("what comes behind the skip is not applied")
	}
	if lost := ask[int64](s, `SELECT lost_offsets FROM projection_watermarks`); lost != 2 {
		t.Errorf("%d lost offsets are stored, want 2", lost)
	}
}

// since returns the records of a partition from an offset on.
func (s *stage) since(partition int32, offset int64) []projection.Record {
	s.t.Helper()
	return slices.DeleteFunc(s.read(), func(r projection.Record) bool {
		return r.Partition != partition || r.Offset < offset
	})
}

// deleteBefore removes the records of a partition below an offset.
func (s *stage) deleteBefore(partition int32, offset int64) {
	s.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(s.topic, partition, offset, -1)
	deleted, err := s.admin.DeleteRecords(s.t.Context(), offsets)
	must(s.t, err)
	must(s.t, deleted.Error())
}

// A position that the log does not reach halts its partition: records that are
// projected are gone.
func TestLogPositionBeyondTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2, Forgiving: true})
	s.watchRows()
	p := s.start()
	s.produce(created("a"), on(1, created("b")))
	s.awaitDrained()
	p.Stop()
	s.exec(`UPDATE projection_watermarks SET next_offset = 100 WHERE kafka_partition = 0`)
	s.awaitNoMembers()
	s.commit(map[int32]int64{0: 100})
	process := s.spawn()
	awaitMetric(t, process, func(v float64) bool { return v == 1 }, "orderprojector_partition_halted", `partition="0"`)
	process.AwaitOutput(patience, "beyond the end of the log")
	awaitStatus(t, process, "/healthz/consumption", 503)
	s.produce(created("never"), on(1, paid("b", 2)))
	s.awaitMarks(patience, map[int32]int64{1: 2})
	if n := ask[int64](s, `SELECT count(*) FROM orders WHERE order_id = 'never'`); n != 0 {
		t.Error("the halted partition goes on")
	}
	if at := s.committed()[0]; at != 100 {
		t.Errorf("committed %d", at)
	}
	if code := process.Stop(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The partition count is raised under load: new events of an order are in
// another partition than the old ones.
func TestLogPartitionsAdded(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 3})
	s.watchRows()
	records := s.generated(generate.Config{Seed: seed, Orders: 1500, Rates: generate.Rates{Disorder: 0.1}}, 3)
	moved := s.generated(generate.Config{Seed: seed, Orders: 1500, Rates: generate.Rates{Disorder: 0.1}}, 6)
	first := s.start()
	half := len(records) / 2
	s.produce(records[:half]...)
	s.awaitMarks(patience, map[int32]int64{0: 1, 1: 1, 2: 1})
	// The old partitions wait at a lock, so that the new ones are ahead of them.
	release := s.holdAllOrders()
	s.produce(records[half : half+half/4]...)
	updated, err := s.admin.UpdatePartitions(t.Context(), 6, s.topic)
	must(t, err)
	must(t, updated.Error())
	s.awaitPartitions(6)
	s.kafka = newProducer(t, s.brokers) // one that knows them
	s.produce(moved[half+half/4 : half+half/2]...)
	second := s.start()
	release()
	s.produce(moved[half+half/2:]...)
	awaitOwned(t, first, 3) // the new partitions are found without a restart
	awaitOwned(t, second, 3)
	s.awaitDrained()
	s.awaitSQL(`SELECT count(*) = 0 FROM parked_events`) // the sweep takes what lost a race

	// How many events were parked depends on the race. The rows do not, nor
	// does the number of records.
	result := s.fold()
	counts := s.counts()
	if n := counts[projection.Applied] + counts[projection.Parked]; n != counts.Total() || n != int64(len(records)) {
		t.Errorf("counts %v of %d records", counts, len(records))
	}
	s.compare(withCounts(s, inVersionOrder(s)))
	if len(result.Orders) != 1500 {
		t.Errorf("%d orders", len(result.Orders))
	}
	if n := ask[int64](s, `SELECT count(DISTINCT order_id) FROM (SELECT order_id FROM order_events
		GROUP BY order_id HAVING count(DISTINCT kafka_partition) = 2) moved`); n == 0 {
		t.Error("no order has events in two partitions")
	}
	if counts[projection.Parked] == 0 {
		t.Error("no event had to wait for one of another partition")
	}
}

// inVersionOrder folds the topic as if every event had come in its turn.
func inVersionOrder(s *stage) *reference.Result {
	s.t.Helper()
	records := s.read()
	version := func(r projection.Record) int64 {
		env, err := (projection.JSONDecoder{}).Decode(&r)
		must(s.t, err)
		return env.Version
	}
	slices.SortStableFunc(records, func(a, b projection.Record) int { return int(version(a) - version(b)) })
	return s.foldOf(records)
}

// withCounts takes the outcomes as they are, where they depend on a race.
func withCounts(s *stage, result *reference.Result) *reference.Result {
	s.t.Helper()
	for log, account := range result.Partitions {
		into := []any{}
		columns := []string{}
		for i, o := range projection.Outcomes() {
			into, columns = append(into, &account.Counts[i]), append(columns, o.String())
		}
		total := account.Counts.Total()
		must(s.t, s.pool.QueryRow(s.t.Context(), `SELECT `+strings.Join(columns, ", ")+` FROM projection_watermarks
			WHERE consumer_group = $1 AND topic_id::text = $2 AND kafka_partition = $3`, s.group, log.TopicID.String(), log.Partition).Scan(into...))
		if got := account.Counts.Total(); got != total {
			s.t.Errorf("%s: %d records are accounted for of %d", log, got, total)
		}
		result.Partitions[log] = account
	}
	return result
}

func (s *stage) awaitPartitions(n int) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		ranges, err := s.reader.Ranges(s.t.Context(), s.topic)
		return err == nil && len(ranges) == n, fmt.Sprintf("%d partitions, %v", len(ranges), err)
	})
}

// Transactions: only what is committed counts, and neither markers nor
// aborted records are lag.
func TestLogTransactions(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	p := s.start()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.TransactionalID(s.group), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	t.Cleanup(client.Close)
	transact := func(end kgo.TransactionEndTry, records ...*kgo.Record) {
		t.Helper()
		must(t, client.BeginTransaction())
		for _, r := range records {
			r.Topic = s.topic
		}
		must(t, client.ProduceSync(t.Context(), records...).FirstErr())
		must(t, client.EndTransaction(t.Context(), end))
	}
	for i := range 20 {
		id := fmt.Sprintf("tx-%d", i)
		end := kgo.TransactionEndTry(rng.IntN(2) == 0)
		transact(end, created(id), on(1, created(id+"-1")), paid(id, 2))
		if end == kgo.TryAbort {
			transact(kgo.TryCommit, created(id), paid(id, 2)) // as a producer does that tries again
		}
	}
	transact(kgo.TryAbort, created("gone"), on(1, created("gone-1"))) // the tail
	s.awaitDrained()
	s.awaitNoLag(p)
	s.judge()
	if n := ask[int64](s, `SELECT count(*) FROM orders WHERE order_id LIKE 'gone%'`); n != 0 {
		t.Error("an aborted record was applied")
	}

	// A transaction that is open holds back what is behind it: that is lag, and yet everything is done.
	must(t, client.BeginTransaction())
	open := created("open")
	open.Topic = s.topic
	must(t, client.ProduceSync(t.Context(), open).FirstErr())
	s.produce(created("behind"))
	s.awaitDrained()
	awaitMetric(t, p, func(v float64) bool { return v == 2 }, "orderprojector_consumer_lag_records")
	awaitStatus(t, p, "/healthz/consumption", 200)
	must(t, client.EndTransaction(t.Context(), kgo.TryAbort))
	s.awaitSQL(`SELECT EXISTS (SELECT FROM orders WHERE order_id = 'behind')`)
	s.awaitDrained()
	s.awaitNoLag(p)
	s.judge()
}

func (s *stage) awaitNoLag(p instance) {
	s.t.Helper()
	awaitMetric(s.t, p, func(v float64) bool { return v == 0 }, "orderprojector_consumer_lag_records")
	awaitMetric(s.t, p, func(v float64) bool { return v == 0 }, "orderprojector_consumer_lag_seconds")
	awaitStatus(s.t, p, "/healthz/consumption", 200)
}
