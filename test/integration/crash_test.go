//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// Two members die (SIGKILL) again and again, at random moments of their lives, while
// every fault that is known flows through the topic.
func TestCrashAtRandomMoments(t *testing.T) {
	t.Parallel()
	const kills = 24
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	// Static members keep their partitions while they restart; otherwise each
	// crash would cost a session timeout.
	spawn := func(i int) *process {
		return s.spawn(fmt.Sprintf("--instance-id=member-%d", i), "--batch-max-records=200")
	}
	members := []*process{spawn(0), spawn(1)}
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty(), Long: 400, Amendments: 80}, 700)

	moved := 0
	before := int64(0)
	for range kills {
		i := rng.IntN(len(members))
		// Half of the crashes come at any moment, start included, the others while it works.
		if rng.IntN(2) == 0 {
			awaitMetric(t, members[i], func(v float64) bool { return v > 0 }, "orderprojector_batch_records_count")
		}
		awaitTime(time.Duration(rng.IntN(1000)) * time.Millisecond)
		members[i].Kill()
		total := int64(0)
		for _, mark := range s.marks() {
			total += mark
		}
		if total > before {
			moved++
		}
		before = total
		members[i] = spawn(i)
	}
	if moved < kills/2 {
		t.Errorf("the watermarks moved between %d of %d crashes only: the members never got to work", moved, kills)
	}
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// awaitTime lets a crash come at a random moment, which no condition can tell.
func awaitTime(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// The batch is in the database, its offset is not in Kafka yet, and the process dies.
func TestCrashBetweenDatabaseAndOffsetCommit(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{})
	s.watchRows()
	const crashes = 4
	pinned := 0
	for i := range 4 * crashes {
		p := s.spawn("--instance-id=one")
		awaitOwned(t, p, 1)
		before := s.marks()[0]
		s.generate(generate.Config{Seed: seed + uint64(i), Orders: 60, Rates: generate.Faulty(), Delay: 20})
		testenv.Await(t, patience, func() (bool, string) {
			mark := s.marks()[0]
			return mark > before, fmt.Sprintf("the watermark is %d", mark)
		})
		p.Kill()
		mark := s.marks()[0]
		committed, any := s.committed()[0]
		between := any && committed < mark // a group without offsets starts at the watermark
		p = s.spawn("--instance-id=one")
		s.awaitDrained()
		if between {
			pinned++
			if again, _ := metricOf(p, "orderprojector_reread_records_total"); again == 0 {
				t.Errorf("offset %d was committed, the watermark was %d, and nothing was read again", committed, mark)
			}
		}
		p.Kill()
		if pinned == crashes {
			s.judge()
			return
		}
	}
	t.Fatalf("only %d crashes came between the two commits", pinned)
}

// A member dies, and the other one reads its partitions.
func TestCrashOfOneMemberOfTwo(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	victim, survivor := s.spawn(), s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 500)
	awaitOwned(t, victim, 2)
	awaitOwned(t, survivor, 2)
	s.awaitMarks(patience, map[int32]int64{0: 50, 1: 50, 2: 50, 3: 50})

	victim.Kill()
	// What is in the log later than the crash is only applied by the survivor.
	took := s.awaitMarks(recovery+5*time.Second, after(s.ends()))
	if took > recovery {
		t.Errorf("the partitions of the killed member were read again after %v", took)
	}
	t.Logf("read again after %v", took)
	awaitOwned(t, survivor, 4)
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// after is one record further in every partition.
func after(offsets map[int32]int64) map[int32]int64 {
	next := map[int32]int64{}
	for partition, at := range offsets {
		next[partition] = at + 1
	}
	return next
}
