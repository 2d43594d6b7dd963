package projection

import "testing"

func TestBreakerJudgesTheWindow(t *testing.T) {
	t.Parallel()
	policy := BreakerPolicy{}.withDefaults()
	for name, tc := range map[string]struct {
		events  int64
		refused []Refusals
		open    Outcome // Ignored: stays closed
	}{
		"nothing refused":          {1000, nil, Ignored},
		"most are invalid":         {199, []Refusals{{Reason: Invalid, Letters: 100, Orders: 100}}, Invalid},
		"exactly half":             {200, []Refusals{{Reason: Invalid, Letters: 100, Orders: 100}}, Ignored},
		"too few letters":          {99, []Refusals{{Reason: Invalid, Letters: 99, Orders: 99}}, Ignored},
		"of too few orders":        {1000, []Refusals{{Reason: Conflict, Letters: 1000, Orders: 99}}, Ignored},
		"several events of each":   {400, []Refusals{{Reason: Illegal, Letters: 300, Orders: 100}}, Illegal},
		"unsupported waits":        {1000, []Refusals{{Reason: Unsupported, Letters: 1000, Orders: 100}}, Ignored},
		"no reason has most":       {300, []Refusals{{Reason: Invalid, Letters: 150, Orders: 100}, {Reason: Illegal, Letters: 150, Orders: 100}}, Ignored},
		"the second has":           {300, []Refusals{{Reason: Invalid, Letters: 100, Orders: 100}, {Reason: Illegal, Letters: 151, Orders: 100}}, Illegal},
		"nobody knows of how many": {-1, []Refusals{{Reason: Invalid, Letters: 1000, Orders: 100}}, Ignored},
	} {
		trip, open := policy.judge(BreakerWindow{Events: tc.events, Refused: tc.refused})
		if open != (tc.open != Ignored) || open && (trip.Reason != tc.open || trip.Events != tc.events) {
			t.Errorf("%s: %v %+v", name, open, trip)
		}
	}
}

func TestRefusalsOfABatch(t *testing.T) {
	t.Parallel()
	record := func(offset int64, key, value string) Record {
		return Record{Offset: offset, Key: []byte(key), Value: []byte(value)}
	}
	b := newBatch(JSONDecoder{}, []Record{
		record(0, "o-1", "x"), record(1, "o-1", "x"), record(2, "o-2", "x"), record(3, "", "x"), record(4, "", "x"),
		{Offset: 5, Control: true}, {Offset: 6}, record(7, "o-3", "x"),
	}, newBatchMemory(), 0)
	b.items[7].outcome = Unsupported
	got := b.refusals(1, 3)
	if len(got) != 1 || got[0].Reason != Invalid || got[0].Letters != 4 || len(got[0].OrderIDs) != 3 {
		t.Errorf("refusals %+v, want 4 letters from offset 1 on, of at most 3 orders", got)
	}
	if all := b.refusals(1, 100); len(all[0].OrderIDs) != 4 { // o-1, o-2 and two that name none
		t.Errorf("orders %q", all[0].OrderIDs)
	}
}
