package relay

import (
	"fmt"
	"testing"
	"time"
)

// Suspects go in groups: those under the least suspicion first, small ones before large ones, up to the bounds; lanes that are no suspects never.
func TestSuspectsGoInGroups(t *testing.T) {
	t.Parallel()
	s := &lanes{byOrder: map[string]*lane{}}
	add := func(id string, group, size int) {
		s.add(&Message{OrderID: id, Payload: make([]byte, size)}).group = group
	}
	add("clean", 0, 1)
	add("alone", 1, 1)
	add("few-1", 2, 1)
	add("few-2", 2, 1)
	add("few-3", 2, 1)
	add("huge", groupMost, groupBytes)
	add("large", groupMost, groupBytes/2)
	add("small", groupMost, 1)
	var got []string
	for group := s.takeGroup(time.Now()); group != nil; group = s.takeGroup(time.Now()) {
		var orders []string
		for _, l := range group {
			orders = append(orders, l.orderID)
		}
		got = append(got, fmt.Sprint(orders))
	}
	want := "[[small large] [huge] [few-1 few-2] [few-3]]"
	if fmt.Sprint(got) != want {
		t.Errorf("groups %v, want %v", got, want)
	}
	if len(s.ready) != 2 || s.groups != groupsAside {
		t.Errorf("%d lanes are left, %d groups under way", len(s.ready), s.groups)
	}
}

// A strike counts only where something else gets through, if there is anything else.
func TestStrikesNeedAWitness(t *testing.T) {
	t.Parallel()
	s := &lanes{byOrder: map[string]*lane{}}
	bad := s.add(&Message{OrderID: "bad"})
	s.suspect(bad)
	bad.group = 1
	other := s.add(&Message{OrderID: "other"})
	for range 2 * enoughStrikes {
		if s.strike(bad) || bad.strikes > 0 {
			t.Fatalf("strike %d counts while nothing is acknowledged", bad.strikes)
		}
	}
	s.acks++
	if s.strike(bad); bad.strikes != 1 {
		t.Errorf("%d strikes after an acknowledgement", bad.strikes)
	}
	if s.strike(bad); bad.strikes != 1 {
		t.Errorf("%d strikes of one acknowledgement", bad.strikes)
	}
	other.group = 1 // it is suspected alone as well: there is nothing else
	for n := 2; n <= enoughStrikes; n++ {
		if enough := s.strike(bad); bad.strikes != n || enough != (n == enoughStrikes) {
			t.Errorf("strike %d: %d, enough %v", n, bad.strikes, enough)
		}
	}
}
