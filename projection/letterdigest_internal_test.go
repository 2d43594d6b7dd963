package projection

import (
	"strings"
	"testing"
	"time"
)

func TestLetterDigestNotesEachReasonOnceAMinute(t *testing.T) {
	t.Parallel()
	d := NewLetterDigest()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d.now = func() time.Time { return now }
	add := func(reason Outcome, n int, order string) {
		for i := range n {
			d.Add([]*DeadLetter{{Reason: reason, OrderID: order, Detail: strings.Repeat("x", 1000), Record: Record{Offset: int64(i)}}})
		}
	}
	expect := func(all bool, want ...LetterNote) {
		t.Helper()
		got := d.Due(all)
		if len(got) != len(want) {
			t.Fatalf("at %s: %d notes, wanted %d: %+v", now.Format(time.TimeOnly), len(got), len(want), got)
		}
		for i, w := range want {
			if got[i].Reason != w.Reason || got[i].Letters != w.Letters || got[i].OrderID != w.OrderID || got[i].Offset != 0 || len(got[i].Detail) > 210 {
				t.Errorf("at %s: %+v, wanted %+v", now.Format(time.TimeOnly), got[i], w)
			}
		}
	}
	expect(false)
	add(Invalid, 42, "o-1")
	expect(false) // a burst may go on
	now = now.Add(5 * time.Second)
	expect(false, LetterNote{Reason: Invalid, Letters: 42, OrderID: "o-1"})
	add(Invalid, 7, "o-2")
	add(Conflict, 1, "o-3")
	now = now.Add(10 * time.Second)
	expect(false, LetterNote{Reason: Conflict, Letters: 1, OrderID: "o-3"})
	now = now.Add(49 * time.Second)
	expect(false)
	now = now.Add(time.Second)
	expect(false, LetterNote{Reason: Invalid, Letters: 7, OrderID: "o-2"})
	add(Illegal, 3, "o-4")
	expect(true, LetterNote{Reason: Illegal, Letters: 3, OrderID: "o-4"}) // the end of the program
	expect(true)
	if d.Total() != 53 {
		t.Errorf("%d letters in total, not 53", d.Total())
	}
}
