//go:build unix

package integration_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// Many invalid records are one line of the log, which names the command that shows one of them. The projector
// and a consumer beside it tell of their own letters.
func TestDeadLettersAreOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) (*stage, *process){
		"projector": func(t testing.TB) (*stage, *process) {
			s := newStage(t, stageConfig{})
			s.poison(42)
			return s, s.spawn("--breaker=false")
		},
		"loyalty": func(t testing.TB) (*stage, *process) {
			s := newLoyaltyStage(t, stageConfig{})
			s.poison(42)
			return s.stage, s.spawn("--breaker=false")
		},
		"notifications": func(t testing.TB) (*stage, *process) {
			s := newNotificationStage(t, stageConfig{}, nil)
			s.poison(42)
			return s.stage, s.spawn("--breaker=false")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := open(t)
			p.AwaitOutput(patience, "records became dead letters")
			s.awaitSQL(`SELECT count(*) = 42 FROM dead_letters WHERE consumer_group = $1`, s.group)
			p.Stop(patience)
			lines := regexp.MustCompile(`.*records became dead letters.*`).FindAllString(p.Stderr(), -1)
			if len(lines) != 1 {
				t.Fatalf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
			}
			m := regexp.MustCompile(`reason=invalid letters=42 order_id=o-0 .*partition=0 offset=0 .*hint="orderprojector (dlq show \d+ --group \S+)"`).FindStringSubmatch(lines[0])
			if m == nil {
				t.Fatal(lines[0])
			}
			if code, out, errs := s.command(strings.Fields(m[1])...); code != 0 || !strings.Contains(out, "invalid") {
				t.Errorf("%s: exit %d\n%s%s", m[1], code, out, errs)
			}
		})
	}
}

// poison produces records that no event can be read from.
func (s *stage) poison(n int) {
	s.t.Helper()
	for i := range n {
		s.produce(record(fmt.Sprintf("o-%d", i), "poison"))
	}
}

// A letter that comes when a parked event is decided counts as well.
func TestAParkedEventThatBecomesALetterIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.spawn()
	s.produce(shipped("o-1", 2))
	s.awaitDrained()
	s.produce(created("o-1"))
	p.AwaitOutput(patience, "reason=illegal letters=1 order_id=o-1")
	testenv.Await(t, patience, func() (bool, string) { return s.drained(t.Context()) })
	s.judge()
}
