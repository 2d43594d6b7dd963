package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// maxEntries bounds how many differing ledger entries of one order are told.
const maxEntries = 3

// judgement compares one order.
type judgement struct {
	v        *verification
	e        *expectation
	id       string
	got      *stored
	findings []Finding
}

func (j *judgement) find(f Finding) { j.findings = append(j.findings, f) }

func (j *judgement) judge(ctx context.Context) error {
	want := j.e.Order(j.id)
	if j.removed(want) {
		return nil
	}
	if want == nil {
		want = &reference.Order{OrderID: j.id, Status: "ok"}
	}
	got := j.got.row
	if got == nil {
		got = &reference.Order{OrderID: j.id, Status: "ok"}
	}
	switch {
	case want.Version > 0 && got.Version == 0:
		j.find(Finding{Cause: MissingRow, Detail: fmt.Sprintf("the topic gives version %d, %s", want.Version, want.State)})
	case want.Version == 0 && got.Version > 0:
		j.find(Finding{Cause: UnexpectedRow, Detail: fmt.Sprintf("the row is at version %d, %s, of which the topic knows nothing", got.Version, got.State)})
	case got.Version < want.Version:
		j.find(Finding{Cause: Behind, Detail: fmt.Sprintf("the row is at version %d, the topic gives %d", got.Version, want.Version)})
	case got.Version > want.Version:
		j.find(Finding{Cause: Ahead, Detail: fmt.Sprintf("the row is at version %d, the topic gives %d", got.Version, want.Version)})
	default:
		j.columns(want, got)
	}
	if err := j.ledger(ctx, want, got); err != nil {
		return err
	}
	if got.Status != want.Status && (want.Version == 0) == (got.Version == 0) {
		j.status(want, got)
	}
	j.parked()
	j.letters()
	j.explain(want, got)
	return nil
}

// removed reports, and says, that the log no longer has what the row was made from.
func (j *judgement) removed(want *reference.Order) bool {
	if j.got.row == nil {
		return false
	}
	known := map[place]bool{}
	if want != nil {
		for i := range want.Ledger {
			e := &want.Ledger[i]
			known[place{projection.TopicPartition{Partition: e.Partition}, e.Offset}] = true
		}
	}
	gone, last := 0, int64(0)
	for i := range j.got.row.Ledger {
		e := &j.got.row.Ledger[i]
		r, ours := j.v.ranges[e.Partition]
		below := ours && e.Offset < r.From
		foreign := j.v.recreated && !known[place{projection.TopicPartition{Partition: e.Partition}, e.Offset}]
		if e.EventID != "" && (below || foreign) {
			gone, last = gone+1, e.Version
		}
	}
	for _, p := range j.got.parked {
		if r, ours := j.v.ranges[p.At.Partition]; ours && p.At.Offset < r.From {
			gone, last = gone+1, p.Version
		}
	}
	if gone == 0 {
		return false
	}
	j.find(Finding{Cause: Removed, Version: last, Detail: fmt.Sprintf(
		"%d of its events, up to version %d, are no longer in the topic: it cannot be folded", gone, last)})
	return true
}

func (j *judgement) columns(want, got *reference.Order) {
	column := func(name string, expected, found any) {
		if expected != found {
			j.find(Finding{Cause: Column, Column: name, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)})
		}
	}
	column("customer_id", want.CustomerID, got.CustomerID)
	column("state", want.State, got.State)
	column("currency", want.Currency, got.Currency)
	column("total_minor", want.TotalMinor, got.TotalMinor)
	column("paid_minor", want.PaidMinor, got.PaidMinor)
	column("refunded_minor", want.RefundedMinor, got.RefundedMinor)
	column("created_at", instant(want.CreatedAt), instant(got.CreatedAt))
	column("updated_at", instant(want.UpdatedAt), instant(got.UpdatedAt))
	column("last_event_id", want.LastEventID, got.LastEventID)
	if want.Status == got.Status {
		column("waiting_for_version", want.WaitingForVersion, got.WaitingForVersion)
	}
	// The coordinates are those of the last entry, unless that was passed by an operator.
	if n := len(got.Ledger); n > 0 && got.Ledger[n-1].EventID != "" {
		last := got.Ledger[n-1]
		column("kafka_topic", want.At.Topic, got.At.Topic)
		column("kafka_partition", last.Partition, got.At.Partition)
		column("kafka_offset", last.Offset, got.At.Offset)
	}
}

// ledger compares the entries that both sides have.
func (j *judgement) ledger(ctx context.Context, want, got *reference.Order) error {
	if int64(len(got.Ledger)) != got.Version {
		j.find(Finding{Cause: Ledger, Detail: fmt.Sprintf("the row is at version %d and has %d ledger entries", got.Version, len(got.Ledger))})
	}
	told := 0
	for i := range min(len(want.Ledger), len(got.Ledger)) {
		e, g := want.Ledger[i], got.Ledger[i]
		if same(e, g) {
			continue
		}
		if e.Partition != g.Partition && g.Partition >= 0 {
			// Which delivery of an event came first is not in the topic when they are in two partitions.
			equal, err := j.delivered(ctx, e, g)
			if err != nil {
				return err
			}
			if equal {
				continue
			}
		}
		if told++; told > maxEntries {
			j.find(Finding{Cause: Ledger, Detail: "and more entries"})
			return nil
		}
		j.entry(e, g)
	}
	return nil
}

func same(e, g reference.Entry) bool {
	equal := e.OccurredAt.Equal(g.OccurredAt)
	e.OccurredAt, g.OccurredAt = time.Time{}, time.Time{}
	return equal && e == g
}

func (j *judgement) entry(e, g reference.Entry) {
	column := func(name string, expected, found any) {
		if expected != found {
			j.find(Finding{Cause: Ledger, Version: e.Version, Column: name, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)})
		}
	}
	column("version", e.Version, g.Version)
	column("event_id", e.EventID, g.EventID)
	column("type", e.Type, g.Type)
	column("state", e.State, g.State)
	column("occurred_at", instant(e.OccurredAt), instant(g.OccurredAt))
	column("digest", fmt.Sprintf("%x", e.Digest), fmt.Sprintf("%x", g.Digest))
	column("kafka_partition", e.Partition, g.Partition)
	column("kafka_offset", e.Offset, g.Offset)
}

// delivered reports whether the stored entry is of another delivery of the
// expected event: the record is there, and folds to the same.
func (j *judgement) delivered(ctx context.Context, e, g reference.Entry) (bool, error) {
	if e.EventID != g.EventID || e.Version != g.Version || e.State != g.State || !e.OccurredAt.Equal(g.OccurredAt) || e.Type != g.Type {
		return false, nil
	}
	second, found, err := j.record(ctx, g.Partition, g.Offset)
	if err != nil || !found || reference.Digest(projection.RecordDigest(&second)) != g.Digest {
		return false, err
	}
	if e.Digest == g.Digest {
		return true, nil
	}
	first, found, err := j.record(ctx, e.Partition, e.Offset)
	return err == nil && found && sameEvent(first, second), err
}

func (j *judgement) record(ctx context.Context, partition int32, offset int64) (record projection.Record, found bool, err error) {
	log := projection.TopicPartition{Topic: j.v.cfg.Topic, TopicID: j.v.id, Partition: partition}
	err = j.v.cfg.Records.ReadRecords(ctx, log, []int64{offset}, func(r projection.Record) { record, found = r, true })
	if err != nil {
		return record, false, fmt.Errorf("reading %s offset %d again: %w", log, offset, err)
	}
	return record, found, nil
}

// sameEvent reports whether two records say the same, written differently.
func sameEvent(a, b projection.Record) bool {
	envA, errA := projection.EventDecoder{}.Decode(&a)
	envB, errB := projection.EventDecoder{}.Decode(&b)
	return errA == nil && errB == nil && projection.SameEvent(&envA, &envB)
}

// status says why one side is held back and the other is not.
func (j *judgement) status(want, got *reference.Order) {
	f := Finding{Cause: Column, Column: "projection_status", Expected: want.Status, Found: got.Status}
	switch {
	case want.Status == "blocked" || got.Status == "blocked":
		f.Cause = Blocked
		for _, l := range j.got.letters {
			if l.Blocks && l.Version == got.Version+1 && (l.Status == "open" || l.Status == "exhausted") {
				f.Version, f.Detail = l.Version, fmt.Sprintf("dead letter %d, %s: %s", l.id, l.reason, l.detail)
			}
		}
	default:
		f.Cause = Parked
		f.Detail = fmt.Sprintf("%d events are parked, %d should be", len(j.got.parked), len(j.e.parked[j.id]))
	}
	j.find(f)
}

type parkedKey struct {
	version int64
	eventID string
	digest  reference.Digest
}

func (j *judgement) parked() {
	keys := func(list []reference.ParkedEvent) map[parkedKey]bool {
		set := map[parkedKey]bool{}
		for _, p := range list {
			set[parkedKey{p.Version, p.EventID, p.Digest}] = true
		}
		return set
	}
	want, got := keys(j.e.parked[j.id]), keys(j.got.parked)
	tell := func(a, b map[parkedKey]bool, expected, found string) {
		var missing []parkedKey
		for k := range a {
			if !b[k] {
				missing = append(missing, k)
			}
		}
		slices.SortFunc(missing, func(x, y parkedKey) int {
			return strings.Compare(fmt.Sprintf("%020d %s", x.version, x.eventID), fmt.Sprintf("%020d %s", y.version, y.eventID))
		})
		for i, k := range missing {
			if i == maxEntries {
				j.find(Finding{Cause: Parked, Detail: fmt.Sprintf("and %d more events", len(missing)-i)})
				return
			}
			j.find(Finding{Cause: Parked, Version: k.version, Column: "event " + k.eventID, Expected: expected, Found: found})
		}
	}
	tell(want, got, "parked", "not parked")
	tell(got, want, "not parked", "parked")
}

func (j *judgement) letters() {
	stored := map[place]letter{}
	for _, l := range j.got.letters {
		stored[place{l.Log, l.Offset}] = l
	}
	tell := func(log projection.TopicPartition, offset, version int64, column, expected, found string) {
		j.find(Finding{Cause: DeadLetter, Version: version, Column: column, Expected: expected, Found: found,
			Detail: fmt.Sprintf("partition %d offset %d", log.Partition, offset)})
	}
	for _, e := range j.e.letters[j.id] {
		at := place{e.Log, e.Offset}
		l, ok := stored[at]
		delete(stored, at)
		switch {
		case !ok && j.e.AllowsMissing(&e):
		case !ok:
			tell(e.Log, e.Offset, e.Version, "letter", e.Reason.String(), "")
		case !j.e.AllowsLetter(&e, l.DeadLetter):
			tell(e.Log, e.Offset, e.Version, "status", e.Status, l.Status)
		case j.e.Decided[j.id] && l.Status != "open" && l.Status != "exhausted":
			// What it was refused for then need not be so with the decisions.
		case e.Reason.String() != l.reason:
			tell(e.Log, e.Offset, e.Version, "reason", e.Reason.String(), l.reason)
		case e.Version != l.Version || e.EventID != l.EventID || e.Blocks != l.Blocks:
			tell(e.Log, e.Offset, e.Version, "letter",
				fmt.Sprintf("version %d event %s blocks %t", e.Version, orNone(e.EventID), e.Blocks),
				fmt.Sprintf("version %d event %s blocks %t", l.Version, orNone(l.EventID), l.Blocks))
		}
	}
	for _, l := range j.got.letters {
		if _, left := stored[place{l.Log, l.Offset}]; !left || j.e.AllowsLetter(nil, l.DeadLetter) || l.Offset < j.v.ranges[l.Log.Partition].From {
			continue
		}
		tell(l.Log, l.Offset, l.Version, "letter", "", l.reason+" "+l.Status)
	}
}

// explain adds what may be behind a difference, if there is one.
func (j *judgement) explain(want, got *reference.Order) {
	if len(j.findings) == 0 {
		return
	}
	if len(j.got.decided) > 0 {
		j.find(Finding{Cause: Decided, Detail: fmt.Sprintf("by the decisions %s", strings.Trim(fmt.Sprint(j.got.decided), "[]"))})
	}
	partitions := map[int32]bool{}
	for _, ledger := range [][]reference.Entry{want.Ledger, got.Ledger} {
		for i := range ledger {
			if ledger[i].Partition >= 0 {
				partitions[ledger[i].Partition] = true
			}
		}
	}
	if len(partitions) > 1 {
		j.find(Finding{Cause: SeveralPartitions, Detail: fmt.Sprintf("its events are in %d partitions", len(partitions))})
	}
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
