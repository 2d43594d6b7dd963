package kafkaio

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

func TestHealthy(t *testing.T) {
	now := time.Now()
	const limit = time.Minute
	moving := PartitionStatus{Topic: "t", Assigned: true, Lag: 1_000_000, LastProgress: now.Add(-limit / 2)}
	good := Status{LastContact: now, Member: MemberStatus{Joined: true}, Partitions: []PartitionStatus{moving}}
	with := func(change func(*Status)) Status {
		s := good
		s.Partitions = []PartitionStatus{moving}
		change(&s)
		return s
	}
	old := now.Add(-2 * limit)
	for _, tc := range []struct {
		name   string
		status Status
		want   string // part of the error, empty for healthy
	}{
		{"slow but moving", good, ""},
		{"idle for long", with(func(s *Status) { s.Partitions[0].Lag, s.Partitions[0].LastProgress = 0, old }), ""},
		{"out of the group for a moment", with(func(s *Status) { s.Member = MemberStatus{Since: now} }), ""},
		{"drained for long", with(func(s *Status) { s.Partitions[0].Drained, s.Partitions[0].LastProgress = true, old }), ""},
		{"a transaction is open", with(func(s *Status) {
			s.Partitions[0].BehindTransaction, s.Partitions[0].TransactionSince = 3, now.Add(-limit/2)
		}), ""},
		{"a transaction is open for long", with(func(s *Status) {
			p := &s.Partitions[0]
			p.Drained, p.BehindTransaction, p.TransactionOffset, p.TransactionSince = true, 3, 7, old
		}), "3 offsets wait behind a transaction that begins at offset 7 and is open for 2m0s"},
		{"stalled", with(func(s *Status) { s.Partitions[0].LastProgress = old }), "no progress for 2m0s with 1000000 records waiting"},
		{"not started", with(func(s *Status) {
			s.Partitions[0].Assigned, s.Partitions[0].LastProgress, s.Partitions[0].LastError = false, old, "connection refused"
		}), "connection refused"},
		{"halted", with(func(s *Status) { s.Partitions[0].HaltedReason = "beyond the end" }), "beyond the end"},
		{"no session", with(func(s *Status) { s.Waiting = "the topic does not exist" }), "does not exist"},
		{"no broker", with(func(s *Status) { s.LastContact, s.ContactError = old, "dial tcp" }), "dial tcp"},
		{"out of the group", with(func(s *Status) { s.Member = MemberStatus{Since: old, LastError: "GROUP_AUTHORIZATION_FAILED"} }), "GROUP_AUTHORIZATION_FAILED"},
	} {
		err := tc.status.healthy(now, limit)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	var stalled *StalledError
	if err := with(func(s *Status) { s.Partitions[0].LastProgress = old }).healthy(now, limit); !errors.As(err, &stalled) || stalled.Lag != 1_000_000 {
		t.Errorf("not a StalledError: %v", err)
	}
}

func TestTimeLag(t *testing.T) {
	now := time.Now()
	f := newFeed(projection.TopicPartition{})
	s := newPartitionState()
	end := logBounds{end: 10, high: 10}
	is := func(what string, age time.Duration, known bool) {
		t.Helper()
		if got, ok := s.timeLag(f, now); got != age || ok != known {
			t.Errorf("%s: lag %s (known: %v), want %s (%v)", what, got, ok, age, known)
		}
	}
	is("before the bounds are known", 0, false)
	s.assigned(projection.Assignment{LogEnd: 10}, end, projection.Start{Offset: 0})
	is("before anything was fetched", 0, false)
	if offset, unknown := s.unknownHead(end); offset != 0 || !unknown {
		t.Errorf("the record at offset %d is to be looked up: %v", offset, unknown)
	}
	s.foundHead(0, now.Add(-3*time.Hour))
	is("by the record that was looked up", 3*time.Hour, true)
	if _, unknown := s.unknownHead(end); unknown {
		t.Error("the record is to be looked up twice")
	}
	batch := records(0, 1, 1)
	batch[0].Timestamp = now.Add(-time.Minute)
	f.push(batch)
	is("by the buffered record", time.Minute, true)
	taken := f.take(nil, 1, 1)
	s.applying(taken)
	is("by the record in flight", time.Minute, true)
	s.applied()
	s.progressed(taken[0].Timestamp)
	s.moved(1)
	is("by the last record", time.Minute, true)
	if offset, unknown := s.unknownHead(end); offset != 1 || !unknown {
		t.Errorf("the record at offset %d is to be looked up: %v", offset, unknown)
	}
	s.foundHead(1, now.Add(-13*time.Second))
	is("by the record that was looked up, not by the last one", 13*time.Second, true)
	s.moved(10)
	is("caught up", 0, true)
}
