//go:build unix

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// Members join and leave again and again, and partitions move between them under load.
func TestMembersJoinAndLeaveUnderLoad(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	s := newStage(t, stageConfig{Partitions: 6})
	s.watchRows()
	small := func(c *config.Config) { c.Projection.BatchMaxRecords = 100 }
	members := []*program{s.start(small)}
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty(), Long: 300, Amendments: 80}, 500)
	awaitOwned(t, members[0], 6)
	for range 3 {
		members = append(members, s.start(small))
		awaitOwned(t, members[0], 3)
		awaitOwned(t, members[1], 3)
		s.awaitMarks(patience, after(s.marks()))
		leaves := rng.IntN(2)
		members[leaves].Stop()
		members = append(members[:leaves], members[leaves+1:]...)
		awaitOwned(t, members[0], 6)
	}
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// A member's batch hangs at a lock while its partition moves to another one.
func TestMembersLateBatchOfTheFormerOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	former := s.start()
	s.produce(on(0, created("a")), on(1, created("b")))
	s.awaitDrained()
	release := s.holdOrders("a", "b")
	s.produce(
		on(0, paid("a", 2)), on(0, created("a-1")), on(0, created("a-2")),
		on(1, paid("b", 2)), on(1, created("b-1")), on(1, created("b-2")),
	)
	s.awaitBlocked()
	// Whichever partition moves, its batch hangs. The former owner gives it up
	// for the sake of the group.
	owner := s.start()
	awaitOwned(t, owner, 1)
	release()
	s.produce(on(0, packed("a", 3)), on(1, packed("b", 3)))
	s.awaitDrained()
	s.judge()
	former.Stop()
	awaitOwned(t, owner, 2)
	s.judge()
}

// A member is frozen for longer than its session, while another one takes
// over, and then goes on as if nothing had happened.
func TestMembersZombie(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	zombie := s.spawn("--session-timeout=6s", "--batch-max-records=20")
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 400)
	awaitOwned(t, zombie, 4)
	s.awaitMarks(patience, map[int32]int64{0: 50, 1: 50, 2: 50, 3: 50})
	zombie.Pause()
	heir := s.spawn("--session-timeout=6s")
	// With luck it was frozen inside a transaction: its locks last until the
	// database ends an idle transaction.
	s.awaitMarks(patience, after(s.ends()))
	zombie.Resume()
	awaitOwned(t, zombie, 2)
	awaitOwned(t, heir, 2)
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// A member is told to stop while the fourth of ten events waits for a lock.
func TestMembersStopWhileARowIsLocked(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.watchRows()
	p := s.spawn("--instance-id=one", "--batch-max-records=1", "--shutdown-grace=5s", patientLocks, patientStatements)
	s.produce(created("o-4"))
	s.awaitDrained()
	release := s.holdOrders("o-4")
	var ten []*kgo.Record
	for i := 1; i <= 10; i++ {
		if i == 4 {
			ten = append(ten, paid("o-4", 2))
			continue
		}
		ten = append(ten, created(fmt.Sprintf("o-%d", i)))
	}
	const first, unapplied = 1, 4 // offsets
	s.produce(ten...)
	s.awaitMarks(patience, map[int32]int64{0: unapplied})
	s.awaitBlocked()
	began := time.Now()
	if code := p.Stop(5*time.Second + 3*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("stopped after %v", time.Since(began))
	if at := s.committed()[0]; at != unapplied {
		t.Errorf("offset %d is committed, the first that is not applied is %d", at, unapplied)
	}
	if mark := s.marks()[0]; mark != unapplied {
		t.Errorf("watermark %d", mark)
	}
	release()
	s.spawn("--instance-id=one")
	s.awaitDrained()
	s.judge()
	if n := s.counts(); n.Total() != first+10 {
		t.Errorf("counts %v", n)
	}
}

// One transaction hangs, and the process dies after its commit interval: what
// hangs must not have been passed, and other partitions go on meanwhile.
func TestMembersOneTransactionHangs(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{Partitions: 2})
	s.watchRows()
	p := s.spawn("--instance-id=one", patientLocks, patientStatements)
	s.produce(created("slow"))
	s.awaitDrained()
	release := s.holdOrders("slow")
	s.produce(paid("slow", 2))
	s.awaitBlocked()
	var others []*kgo.Record
	for i := range 50 {
		others = append(others, created(fmt.Sprintf("behind-%d", i)), on(1, created(fmt.Sprintf("beside-%d", i))))
	}
	s.produce(others...)
	testenv.Await(t, patience, func() (bool, string) { // the other partition is committed
		at := s.committed()
		return at[1] == 50, fmt.Sprintf("committed %v", at)
	})
	if at := s.committed()[0]; at != 1 {
		t.Errorf("offset %d is committed although offset 1 is pending", at)
	}
	p.Kill()
	release()
	s.spawn("--instance-id=one")
	s.awaitDrained()
	s.judge()
}

// A member that is stopped under load leaves at once, and leaves nothing to be done twice.
func TestMembersHandOver(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	leaving, staying := s.spawn(), s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 500)
	awaitOwned(t, leaving, 2)
	awaitOwned(t, staying, 2)
	s.awaitMarks(patience, after(s.ends()))

	began := time.Now()
	if code := leaving.Stop(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	awaitOwnedWithin(t, staying, 4, 10*time.Second)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the other member got the partitions %v after SIGTERM", took)
	}
	if !strings.Contains(leaving.Stderr(), "msg=stopped") {
		t.Error("the member does not say that it stopped")
	}
	traffic.stop()
	s.awaitDrained()
	if again, _ := metricOf(staying, "orderprojector_reread_records_total"); again != 0 {
		t.Errorf("%v records were read again after a clean stop", again)
	}
	s.judge()
}

// A second signal does not wait.
func TestMembersStopTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.spawn("--instance-id=one")
	s.produce(created("o"))
	s.awaitDrained()
	s.holdOrders("o")
	s.produce(paid("o", 2))
	s.awaitBlocked()
	p.Signal(syscall.SIGTERM)
	p.AwaitOutput(patience, "stopping")
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(3 * time.Second); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

// The consumer protocol (KIP-848): members join, leave and die.
func TestMembersOfTheConsumerProtocol(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Partitions: 4})
	s.watchRows()
	one := s.spawn("--group-protocol=consumer")
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 400)
	awaitOwned(t, one, 4)
	two := s.spawn("--group-protocol=consumer")
	awaitOwned(t, one, 2)
	awaitOwned(t, two, 2)
	s.awaitMarks(patience, after(s.ends()))
	if code := one.Stop(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	awaitOwned(t, two, 4)
	three := s.spawn("--group-protocol=consumer")
	awaitOwned(t, three, 2)
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// A static member that restarts within its session keeps its partitions, and nobody else notices.
func TestMembersWithAnInstanceID(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			s := newStage(t, stageConfig{Partitions: 4})
			s.watchRows()
			spawn := func(id string) *process { return s.spawn("--instance-id="+id, "--group-protocol="+protocol) }
			one, two := spawn("one"), spawn("two")
			awaitOwned(t, one, 2)
			awaitOwned(t, two, 2)
			s.produce(created("a"), on(1, created("b")), on(2, created("c")), on(3, created("d")))
			s.awaitDrained()
			before, had := strings.Count(two.Stderr(), "partitions revoked"), assignedTo(one)

			if code := one.Stop(10 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.produce(paid("a", 2), on(1, paid("b", 2)), on(2, paid("c", 2)), on(3, paid("d", 2)))
			one = spawn("one")
			awaitOwned(t, one, 2)
			s.awaitDrained()
			if now := assignedTo(one); !slices.Equal(now, had) {
				t.Errorf("it got partitions %v, and had %v before", now, had)
			}
			if strings.Count(two.Stderr(), "partitions revoked") != before {
				t.Error("partitions of the other member were moved")
			}

			// Somebody starts the same instance once more.
			double := spawn("one")
			loser := one
			if protocol == "consumer" {
				loser = double // there the one that is there keeps its place
				loser.AwaitOutput(patience, "the instance ID is still held")
			} else {
				if code := loser.Wait(patience); code != 1 {
					t.Errorf("exit code %d", code)
				}
				for _, want := range []string{"another member of the group uses the same instance ID", "--instance-id"} {
					if !strings.Contains(loser.Stderr(), want) {
						t.Errorf("it does not say %q:\n%s", want, loser.Stderr())
					}
				}
			}
			s.produce(packed("a", 3), on(1, packed("b", 3)), on(2, packed("c", 3)), on(3, packed("d", 3)))
			s.awaitDrained()
			s.judge()
		})
	}
}

var position = regexp.MustCompile(`orderprojector_consumer_position_offset\{partition="(\d+)"`)

// assignedTo lists the partitions that a program reads.
func assignedTo(p instance) []string {
	_, body := get(p.HTTPAddr(), "/metrics")
	var partitions []string
	for _, m := range position.FindAllStringSubmatch(body, -1) {
		partitions = append(partitions, m[1])
	}
	slices.Sort(partitions)
	return partitions
}
