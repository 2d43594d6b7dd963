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
	s.assigned(projection.Assignment{LogEnd: 10}, projection.Start{Offset: 0})
	batch := records(0, 1, 1)
	batch[0].Timestamp = now.Add(-time.Minute)
	f.push(batch)
	if lag := s.timeLag(f, now); lag != time.Minute {
		t.Errorf("lag by the buffered record: %s", lag)
	}
	taken := f.take(nil, 1, 1)
	s.applying(taken)
	if lag := s.timeLag(f, now); lag != time.Minute {
		t.Errorf("lag by the record in flight: %s", lag)
	}
	s.applied()
	s.progressed(taken[0].Timestamp)
	s.moved(1)
	if lag := s.timeLag(f, now); lag != time.Minute {
		t.Errorf("lag by the last record: %s", lag)
	}
	s.moved(10)
	if lag := s.timeLag(f, now); lag != 0 {
		t.Errorf("caught up, but the lag is %s", lag)
	}
}
