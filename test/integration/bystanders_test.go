//go:build unix

package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// piped is a program that writes its log to a pipe.
type piped struct {
	*testenv.Process
	read    *os.File
	address string
}

func (p *piped) HTTPAddr() string { return p.address }

// spawnWithPipe runs the program with a pipe as its standard error. The pipe is read until the program listens, and
// is then filled up.
func (s *stage) spawnWithPipe(args ...string) *piped {
	s.t.Helper()
	read, write, err := os.Pipe()
	must(s.t, err)
	s.t.Cleanup(func() { _ = read.Close() })
	p := &piped{read: read, Process: testenv.StartProcess(s.t, testenv.ProcessConfig{Args: append([]string{"run"}, args...), Env: s.env(), Stderr: write})}
	must(s.t, read.SetReadDeadline(time.Now().Add(patience)))
	for lines := bufio.NewReader(read); p.address == ""; {
		line, err := lines.ReadString('\n')
		must(s.t, err)
		if m := listening.FindStringSubmatch(line); m != nil {
			p.address = m[1]
		}
	}
	var written atomic.Int64
	go func() {
		defer func() { _ = write.Close() }()
		for {
			n, err := write.Write([]byte("nobody reads this\n"))
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	}()
	testenv.Await(s.t, patience, func() (bool, string) {
		before := written.Load()
		time.Sleep(200 * time.Millisecond) // a writer that wrote nothing in the meantime waits
		return before > 0 && written.Load() == before, "the pipe is not full"
	})
	return p
}

// amend produces events of one order, each a batch of its own, until they are all applied.
func (s *stage) amend(from, to int64) {
	s.t.Helper()
	for version := from; version <= to; version++ {
		s.produce(amended("o-1", version, fmt.Sprintf("%d.00", version)))
	}
	s.awaitDrained()
}

// Nobody reads the log. Records are applied, also those of which the log tells, and the program stops within its grace.
func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.produce(created("o-1"))
	p := s.spawnWithPipe("--log-level=debug", "--shutdown-grace=5s", "--database-lock-timeout=500ms")
	s.awaitDrained()
	release := s.holdOrders("o-1")
	s.produce(amended("o-1", 2, "2.00"))
	awaitMetric(t, p, func(n float64) bool { return n > 0 }, "orderprojector_retries_total")
	release()
	s.amend(3, 50)
	if status, body := get(p.address, "/healthz/consumption"); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	s.stopsInTime(p.Process, 5*time.Second)
	s.judge()
}

// stopsInTime stops a program whose grace is so long.
func (s *stage) stopsInTime(p *testenv.Process, grace time.Duration) {
	s.t.Helper()
	began := time.Now()
	if code := p.Stop(patience); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
	// The flush of the log has a second of its own.
	if took := time.Since(began); took > grace+2*time.Second {
		s.t.Errorf("the program stopped after %s, and its grace is %s", took, grace)
	}
}

// The reader of the log goes away, which ends a program that does not expect it.
func TestALogWhoseReaderGoesAwayStopsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.produce(created("o-1"))
	p := s.spawnWithPipe("--log-level=debug", "--shutdown-grace=5s", "--database-lock-timeout=500ms")
	s.awaitDrained()
	must(t, p.read.Close())
	release := s.holdOrders("o-1")
	s.produce(amended("o-1", 2, "2.00"))
	awaitMetric(t, p, func(n float64) bool { return n > 0 }, "orderprojector_retries_total")
	release()
	s.amend(3, 20)
	s.stopsInTime(p.Process, 5*time.Second)
	s.judge()
}

// Scrapers ask for metrics and never read an answer.
func TestScrapersThatReadNoAnswerStopNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.spawn("--shutdown-grace=5s")
	questions := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: scraper\r\n\r\n", 1000)
	for range 6 {
		conn, err := net.Dial("tcp", p.HTTPAddr())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = io.WriteString(conn, questions)
		must(t, err)
	}
	s.produce(created("o-1"))
	s.amend(2, 50)
	if status, _ := get(p.HTTPAddr(), "/livez"); status != 200 {
		t.Errorf("/livez: %d", status)
	}
	s.stopsInTime(p.Process, 5*time.Second)
	s.judge()
}
