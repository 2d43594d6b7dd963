package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
)

// comparison collects what differs. The first look is at everything, later ones at what
// differed so far, each on its own snapshot.
type comparison struct {
	v      *verification
	report *Report

	differing map[string]Difference
}

func (c *comparison) differs() bool {
	return len(c.differing) > 0 || len(c.report.Letters) > 0 || len(c.report.Accounts) > 0
}

// everything compares all that was selected.
func (c *comparison) everything(ctx context.Context, s *snapshot, marks map[int32]account, e *expectation) error {
	c.differing = map[string]Difference{}
	c.partitions(marks)
	if c.v.chooser.orders != nil {
		return c.orders(ctx, s, e, slices.Sorted(maps.Keys(c.v.chooser.orders)), true)
	}
	if c.v.cfg.Selection.Sample > 0 {
		ids, err := c.sampled(ctx, s, e)
		if err != nil {
			return err
		}
		return c.pages(ctx, s, e, ids)
	}
	if err := c.all(ctx, s, e); err != nil {
		return err
	}
	if c.v.cfg.EventIDs {
		c.report.EventIDs = sharedEventIDs(e.Result)
	}
	return c.beside(ctx, s, marks, e)
}

// again looks at what differed before.
func (c *comparison) again(ctx context.Context, s *snapshot, marks map[int32]account, e *expectation) error {
	before := c.differing
	c.differing = map[string]Difference{}
	c.partitions(marks)
	ids := slices.Sorted(maps.Keys(before))
	for page := range slices.Chunk(ids, pageOrders) {
		if err := c.orders(ctx, s, e, page, false); err != nil {
			return err
		}
	}
	if c.v.chooser.all() {
		return c.beside(ctx, s, marks, e)
	}
	return nil
}

// beside compares what belongs to no order.
func (c *comparison) beside(ctx context.Context, s *snapshot, marks map[int32]account, e *expectation) error {
	c.report.Letters, c.report.Accounts = nil, nil
	if err := c.lettersWithoutOrder(ctx, s, e); err != nil {
		return fmt.Errorf("reading dead_letters: %w", err)
	}
	return c.compareAccounts(ctx, s, marks, e)
}

func (c *comparison) partitions(marks map[int32]account) {
	c.report.Partitions = nil
	for partition := range int32(len(c.v.ranges)) {
		r := c.v.ranges[partition]
		mark, found := marks[partition]
		p := Partition{Partition: partition, LogStart: r.From, LogEnd: r.Until, Watermark: mark.next, Unassigned: !found}
		if !found {
			p.Watermark = r.From
		}
		p.LogEnd = max(p.LogEnd, p.Watermark) // it may have grown since
		p.NotYet = p.LogEnd - max(p.Watermark, p.LogStart)
		c.report.Partitions = append(c.report.Partitions, p)
	}
}

// all walks through both sides in the order of their keys, a page of rows at a time.
func (c *comparison) all(ctx context.Context, s *snapshot, e *expectation) error {
	rest := e.ids
	after := ""
	for {
		page, err := s.orderIDs(ctx, c.v.chooser, after)
		if err != nil {
			return err
		}
		last := len(page) < pageOrders
		cut := len(rest)
		if !last {
			after = page[len(page)-1]
			if cut, _ = slices.BinarySearch(rest, after); cut < len(rest) && rest[cut] == after {
				cut++
			}
		}
		if err := c.pages(ctx, s, e, merge(page, rest[:cut])); err != nil {
			return err
		}
		if rest = rest[cut:]; last {
			return nil
		}
	}
}

// sampled chooses the sample out of the orders of both sides.
func (c *comparison) sampled(ctx context.Context, s *snapshot, e *expectation) ([]string, error) {
	var ids []string
	for _, id := range e.ids {
		if c.v.chooser.has(id) {
			ids = append(ids, id)
		}
	}
	for after := ""; ; {
		page, err := s.orderIDs(ctx, c.v.chooser, after)
		if err != nil {
			return nil, err
		}
		ids = append(ids, page...)
		if len(page) < pageOrders {
			break
		}
		after = page[len(page)-1]
	}
	return c.v.chooser.sample(merge(ids, nil), c.v.cfg.Selection.Sample), nil
}

func merge(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, strings.Compare)
	return slices.Compact(all)
}

func (c *comparison) pages(ctx context.Context, s *snapshot, e *expectation, ids []string) error {
	for page := range slices.Chunk(ids, pageOrders) {
		if err := c.orders(ctx, s, e, page, true); err != nil {
			return err
		}
	}
	return nil
}

// orders compares some orders; count says that they are seen for the first time.
func (c *comparison) orders(ctx context.Context, s *snapshot, e *expectation, ids []string, count bool) error {
	held, err := s.held(ctx)
	if err != nil {
		return err
	}
	if count {
		all := len(ids)
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return held[id] })
		c.report.Held += all - len(ids)
	}
	all, err := s.read(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		got := all[id]
		if count && (got.row != nil || e.Order(id) != nil) {
			c.report.Orders++
			if o := e.Order(id); o != nil {
				switch o.Status {
				case "waiting":
					c.report.Waiting++
				case "blocked":
					c.report.Blocked++
				}
			}
		}
		j := &judgement{v: c.v, e: e, id: id, got: got}
		if err := j.judge(ctx); err != nil {
			return err
		}
		if len(j.findings) > 0 {
			c.differing[id] = Difference{OrderID: id, Findings: j.findings}
		}
	}
	return nil
}

// lettersWithoutOrder compares the letters of records that name no order.
func (c *comparison) lettersWithoutOrder(ctx context.Context, s *snapshot, e *expectation) error {
	expected := map[place]reference.DeadLetter{}
	for _, l := range e.letters[""] {
		expected[place{l.Log, l.Offset}] = l
	}
	after := int64(0)
	for {
		page, err := s.lettersWithoutOrder(ctx, after, pageOrders)
		if err != nil {
			return err
		}
		for _, l := range page {
			after = l.id
			at := place{l.Log, l.Offset}
			want, ok := expected[at]
			delete(expected, at)
			switch {
			case l.Offset < c.v.ranges[l.Log.Partition].From:
			case !ok && !e.AllowsLetter(nil, l.DeadLetter) && l.Status != "redriven":
				c.letter(l.Log.Partition, l.Offset, "none", "letter "+l.Status)
			case ok && !e.AllowsLetter(&want, l.DeadLetter) && l.Status != "redriven":
				c.letter(l.Log.Partition, l.Offset, want.Status, l.Status)
			}
		}
		if len(page) < pageOrders {
			break
		}
	}
	for _, l := range e.letters[""] {
		if _, missing := expected[place{l.Log, l.Offset}]; missing {
			c.letter(l.Log.Partition, l.Offset, l.Reason.String(), "no letter")
		}
	}
	return nil
}

func (c *comparison) letter(partition int32, offset int64, expected, found string) {
	c.report.Letters = append(c.report.Letters, Finding{
		Cause: DeadLetter, Column: "status", Expected: expected, Found: found,
		Detail: fmt.Sprintf("partition %d offset %d", partition, offset),
	})
}

// compareAccounts compares the counts of first decisions. They are comparable
// where the topic still has everything that was counted.
func (c *comparison) compareAccounts(ctx context.Context, s *snapshot, marks map[int32]account, e *expectation) error {
	decided, err := operated(ctx, s)
	if err != nil {
		return err
	}
	for partition := range int32(len(c.v.ranges)) {
		mark, found := marks[partition]
		r := c.v.ranges[partition]
		if !found || r.From > 0 {
			continue
		}
		want := e.Partitions[r.TopicPartition].Counts
		differs := func(column string, expected, found int64) {
			if expected != found {
				c.report.Accounts = append(c.report.Accounts, Account{partition, column, expected, found})
			}
		}
		if differs("records", want.Total(), mark.counts.Total()); decided || mark.counts[projection.Held] > 0 {
			continue // what each was at first depends on when operators decided, and on what is held
		}
		for _, o := range projection.Outcomes() {
			differs(o.String(), want[o], mark.counts[o])
		}
	}
	return nil
}

// operated reports whether operators, or failures of held records, changed what becomes of events.
func operated(ctx context.Context, s *snapshot) (decided bool, err error) {
	err = s.tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM audit_log WHERE action IN
		('dlq.redrive', 'dlq.discard', 'gaps.accept', 'gaps.repair', 'decisions.undo', 'orders.reproject')) OR EXISTS (SELECT FROM dead_letters WHERE was_held)`).Scan(&decided)
	if err != nil {
		return false, fmt.Errorf("reading audit_log: %w", err)
	}
	return decided, nil
}

// conclude writes what remains into the report.
func (c *comparison) conclude() {
	r := c.report
	for _, id := range slices.Sorted(maps.Keys(c.differing)) {
		d := c.differing[id]
		seen := map[Cause]bool{}
		for _, f := range d.Findings {
			if !seen[f.Cause] {
				seen[f.Cause] = true
				r.Causes[f.Cause]++
			}
		}
		if d.removed() {
			r.Unverifiable++
		} else {
			r.Differing++
		}
		if len(r.Differences) < c.v.cfg.MaxListed {
			r.Differences = append(r.Differences, d)
		}
	}
	r.Equal = max(0, r.Orders-r.Differing-r.Unverifiable)
	if r.Differences == nil {
		r.Differences = []Difference{}
	}
	if len(c.differing) > len(r.Differences) {
		r.Notes = append(r.Notes, fmt.Sprintf("%d more orders differ than are listed", len(c.differing)-len(r.Differences)))
	}
	if r.Held > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d orders have held records, or letters that were held, and are not compared: see orderprojector held list, and dlq list", r.Held))
	}
	for _, p := range r.Partitions {
		if p.LogStart > 0 && c.v.chooser.all() {
			r.Notes = append(r.Notes, fmt.Sprintf("partition %d begins at offset %d: its counts cannot be compared", p.Partition, p.LogStart))
		}
		if p.Watermark < p.LogStart {
			r.Notes = append(r.Notes, fmt.Sprintf("partition %d begins at offset %d, above the watermark %d: retention removed what was not projected yet", p.Partition, p.LogStart, p.Watermark))
		}
	}
	if c.v.recreated {
		r.Notes = append(r.Notes, "the topic was created anew: what was projected from the old one cannot be compared")
	}
}
