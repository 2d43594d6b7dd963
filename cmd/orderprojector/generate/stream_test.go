package generate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func stream(t testing.TB, config Config) *Stream {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fingerprint(t *testing.T, config Config) string {
	t.Helper()
	hash := sha256.New()
	for r := range stream(t, config).All() {
		fmt.Fprintf(hash, "%q %v %q %v %q %v\n", r.Key, r.Key == nil, r.Value, r.Value == nil, r.PartitionKey, r.Label)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

func TestSameConfigGivesTheSameStream(t *testing.T) {
	t.Parallel()
	config := Config{Seed: 7, Orders: 300, Rates: Faulty()}
	first := fingerprint(t, config)
	if again := fingerprint(t, config); again != first {
		t.Error("the same configuration gave another stream")
	}
	config.Seed++
	if other := fingerprint(t, config); other == first {
		t.Error("another seed gave the same stream")
	}
}

// written is the part of an event that the tests look at.
type written struct {
	EventID    string    `json:"event_id"`
	OrderID    string    `json:"order_id"`
	Type       string    `json:"type"`
	Version    int64     `json:"version"`
	OccurredAt time.Time `json:"occurred_at"`
}

func TestWithoutRatesTheTrafficIsClean(t *testing.T) {
	t.Parallel()
	const orders = 500
	versions := map[string]int64{}
	times := map[string]time.Time{}
	ids := map[string]bool{}
	types := map[string]int{}
	s := stream(t, Config{Seed: 1, Orders: orders, InFlight: 50})
	interleaved, last := 0, ""
	for r := range s.All() {
		var e written
		if err := json.Unmarshal(r.Value, &e); err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		if r.Label.Fault != None || r.Label.OrderID != e.OrderID || r.Label.Version != e.Version {
			t.Fatalf("label %+v of %s", r.Label, r.Value)
		}
		if string(r.Key) != e.OrderID || !bytes.Equal(r.Key, r.PartitionKey) {
			t.Fatalf("key %q, partition key %q of %s", r.Key, r.PartitionKey, r.Value)
		}
		if versions[e.OrderID]++; versions[e.OrderID] != e.Version {
			t.Fatalf("order %s: version %d, want %d", e.OrderID, e.Version, versions[e.OrderID])
		}
		if !e.OccurredAt.After(times[e.OrderID]) {
			t.Fatalf("order %s goes back to %s", e.OrderID, e.OccurredAt)
		}
		if ids[e.EventID] || len(e.EventID) != 36 || e.EventID[14] != '7' || !strings.ContainsRune("89ab", rune(e.EventID[19])) {
			t.Fatalf("event ID %s is no UUIDv7 or not unique", e.EventID)
		}
		if millis, _ := strconv.ParseInt(strings.ReplaceAll(e.EventID[:13], "-", ""), 16, 64); millis != e.OccurredAt.UnixMilli() {
			t.Fatalf("event ID %s does not carry the time %s", e.EventID, e.OccurredAt)
		}
		times[e.OrderID], ids[e.EventID] = e.OccurredAt, true
		types[e.Type]++
		if last != e.OrderID {
			interleaved++
		}
		last = e.OrderID
	}
	if len(versions) != orders || s.Started() != orders {
		t.Errorf("%d orders of %d", len(versions), orders)
	}
	if interleaved < len(ids)*8/10 {
		t.Errorf("only %d of %d records follow one of another order", interleaved, len(ids))
	}
	for _, name := range kindNames {
		if types[name+".v1"] == 0 {
			t.Errorf("no %s", name)
		}
	}
}

func TestEveryFaultIsThere(t *testing.T) {
	t.Parallel()
	config := Config{Seed: 3, Orders: 5000, Rates: Faulty()}
	config.Poison *= 6 // so that every kind of it comes
	faults, details := map[Fault]int{}, map[string]bool{}
	total := 0
	for r := range stream(t, config).All() {
		total++
		faults[r.Label.Fault]++
		details[r.Label.Detail] = true
		if len(r.Headers) != 1 || r.Headers[0].Key != HeaderGenerator {
			t.Fatalf("headers %v", r.Headers)
		}
		if r.Key != nil && !bytes.Equal(r.Key, r.PartitionKey) {
			t.Fatalf("key %.50q would go to the partition of %.50q", r.Key, r.PartitionKey)
		}
		if r.PartitionKey == nil {
			t.Fatalf("no partition key: %+v", r.Label)
		}
	}
	for _, fault := range Faults() {
		t.Logf("%-12s %d", fault, faults[fault])
		if faults[fault] == 0 {
			t.Errorf("no record is %s", fault)
		}
	}
	for _, made := range wholeValues {
		if !details[made.name] {
			t.Errorf("no poison of %s", made.name)
		}
	}
	for _, made := range wrongKeys {
		if !details[made.name] {
			t.Errorf("no poison of %s", made.name)
		}
	}
	for _, made := range badMembers {
		if !details[made.name] {
			t.Errorf("no poison of %s", made.name)
		}
	}
	if clean := float64(faults[None]) / float64(total); clean < 0.75 {
		t.Errorf("only %.0f%% of the records are clean", 100*clean)
	}
}

func TestOneRateGivesOneFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rates Rates
		want  Fault
	}{
		"duplicate":    {Rates{Duplicate: 0.1}, Duplicate},
		"re-encoded":   {Rates{Reencoded: 0.1}, Reencoded},
		"late repeat":  {Rates{LateRepeat: 0.1}, LateRepeat},
		"disorder":     {Rates{Disorder: 0.1}, Disorder},
		"conflict":     {Rates{Conflict: 0.1}, Conflict},
		"poison":       {Rates{Poison: 0.1}, Poison},
		"illegal":      {Rates{Illegal: 0.1}, Illegal},
		"unsupported":  {Rates{Unsupported: 0.1}, Unsupported},
		"gap":          {Rates{Gap: 0.1}, LateVersion},
		"tombstone":    {Rates{Tombstone: 0.1}, Tombstone},
		"null key":     {Rates{NullKey: 0.1}, NullKey},
		"huge version": {Rates{HugeVersion: 0.1}, HugeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counts := map[Fault]int{}
			for r := range stream(t, Config{Seed: 5, Orders: 300, Rates: c.rates}).All() {
				counts[r.Label.Fault]++
			}
			if len(counts) != 2 || counts[c.want] == 0 || counts[None] == 0 {
				t.Errorf("got %v, want %s beside clean events", counts, c.want)
			}
		})
	}
}

func TestRepeatsHaveTheSameBytes(t *testing.T) {
	t.Parallel()
	type claim struct {
		order   string
		version int64
	}
	seen := map[claim][][]byte{}
	var late, soon []int // distances
	at := map[string]int{}
	n := 0
	rates := Rates{Duplicate: 0.1, LateRepeat: 0.1, Reencoded: 0.1}
	for r := range stream(t, Config{Seed: 9, Orders: 2000, Rates: rates}).All() {
		n++
		c := claim{r.Label.OrderID, r.Label.Version}
		known := slices.ContainsFunc(seen[c], func(b []byte) bool { return bytes.Equal(b, r.Value) })
		switch r.Label.Fault {
		case None:
			at[string(r.Value)] = n
		case Duplicate:
			if !known {
				t.Fatalf("duplicate of nothing: %s", r.Value)
			}
			soon = append(soon, n-at[string(r.Value)])
		case LateRepeat:
			if !known {
				t.Fatalf("repeat of nothing: %s", r.Value)
			}
			late = append(late, n-at[string(r.Value)])
		case Reencoded:
			if known {
				t.Fatalf("re-encoded to the same bytes: %s", r.Value)
			}
		}
		seen[c] = append(seen[c], r.Value)
	}
	if len(late) == 0 || len(soon) == 0 {
		t.Fatal("no repeats")
	}
	if slices.Min(late) < 1 || slices.Max(late) < 1000 {
		t.Errorf("late repeats come %d to %d records later", slices.Min(late), slices.Max(late))
	}
}

// A stream of many orders keeps only the ones in flight.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	s := stream(t, Config{Seed: 2, Orders: 10_000, InFlight: 100, Rates: Faulty()})
	for range s.All() {
		if len(s.flight)+len(s.idle) > 100 {
			t.Fatalf("%d orders are kept", len(s.flight)+len(s.idle))
		}
		if len(s.delayed) > maxDelayed+1 {
			t.Fatalf("%d records are delayed", len(s.delayed))
		}
	}
}

func TestLongOrders(t *testing.T) {
	t.Parallel()
	longest := int64(0)
	for r := range stream(t, Config{Orders: 10, Long: 10, Amendments: 1000}).All() {
		longest = max(longest, r.Label.Version)
	}
	if longest < 1001 {
		t.Errorf("the longest order has %d events", longest)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, config := range []Config{
		{Orders: -1}, {Window: -1}, {Rates: Rates{Duplicate: 1.5}}, {Rates: Rates{Poison: -0.1}},
		{Start: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minor  int64
		places int
		want   string
	}{
		{0, 2, "0.00"}, {5, 2, "0.05"}, {1999, 2, "19.99"}, {100, 0, "100"}, {1234, 3, "1.234"}, {7, 3, "0.007"},
	} {
		if got := string(appendAmount(nil, c.minor, c.places)); got != c.want {
			t.Errorf("%d at %d places: %s, want %s", c.minor, c.places, got, c.want)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	s := stream(b, Config{Orders: b.N, Rates: Faulty()})
	b.ReportAllocs()
	records, size := 0, 0
	for r := range s.All() {
		records++
		size += len(r.Value)
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(size)/float64(records), "B/record")
}
