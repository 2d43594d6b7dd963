package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
)

const shownDifferences = 30

// meanings say what becomes of a record, in the order in which it is decided.
var meanings = map[projection.Outcome]string{
	projection.Applied:     "next in line and legal: state and ledger entry written",
	projection.Duplicate:   "repeats a ledger entry: zero rows",
	projection.Parked:      "ahead of a gap: kept until the gap closes",
	projection.Stale:       "its version was skipped: zero rows",
	projection.Conflict:    "contradicts the ledger: dead letter, order untouched",
	projection.Invalid:     "not an event: dead letter",
	projection.Unsupported: "unknown type or version: dead letter, the order waits",
	projection.Illegal:     "refused by the state machine: dead letter, the order waits",
	projection.Held:        "could not be written while others could: tried again",
	projection.Ignored:     "tombstone: counted, erases nothing",
}

func printFaults(out io.Writer, traffic publish.Summary) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SENT AS\tRECORDS")
	for _, fault := range generate.Faults() {
		if n := traffic.Faults[fault]; n > 0 {
			fmt.Fprintf(t, "%s\t%d\n", fault, n)
		}
	}
	_ = t.Flush() // a broken pipe shows at the next write
	fmt.Fprintln(out)
}

func printOutcomes(out io.Writer, v *verification) {
	logs := slices.SortedFunc(maps.Keys(v.result.Partitions), func(a, b projection.TopicPartition) int {
		return cmp.Compare(a.Partition, b.Partition)
	})
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "OUTCOME\tRECORDS")
	for _, log := range logs {
		fmt.Fprintf(t, "\tPARTITION %d", log.Partition)
	}
	fmt.Fprintln(t, "\tMEANING")
	sum := v.result.Counts()
	line := func(name string, count func(projection.Counts) int64, meaning string) {
		fmt.Fprintf(t, "%s\t%d", name, count(sum))
		for _, log := range logs {
			fmt.Fprintf(t, "\t%d", count(v.result.Partitions[log].Counts))
		}
		fmt.Fprintf(t, "\t%s\n", meaning)
	}
	outcomes := projection.Outcomes()
	slices.SortStableFunc(outcomes, func(a, b projection.Outcome) int { return cmp.Compare(sum[b], sum[a]) })
	for _, outcome := range outcomes {
		line(outcome.String(), func(c projection.Counts) int64 { return c[outcome] }, meanings[outcome])
	}
	line("all", projection.Counts.Total, "every record is exactly one of these")
	_ = t.Flush()
}

// example is a kind of order worth a look.
type example struct {
	title string
	fits  func(o *reference.Order, c projection.Counts) bool
}

var examples = []example{
	{"A clean order", func(o *reference.Order, c projection.Counts) bool {
		return o.Status == "ok" && c.Total() == o.Version && c[projection.Applied] == o.Version && o.Version >= 5
	}},
	{"An order with duplicates: they touched nothing", func(o *reference.Order, c projection.Counts) bool {
		return o.Status == "ok" && c[projection.Duplicate] >= 2 && c[projection.Applied]+c[projection.Duplicate] == c.Total()
	}},
	{"An order whose events came out of order: they were parked, and released (see the offsets)",
		func(o *reference.Order, c projection.Counts) bool {
			return o.Status == "ok" && c[projection.Parked] >= 2 && c[projection.Applied]+c[projection.Parked] == c.Total()
		}},
	{"A blocked order: its next version is a dead letter, what follows is parked", func(o *reference.Order, c projection.Counts) bool {
		return o.Status == "blocked" && o.Version >= 1 && c[projection.Illegal] >= 1 && c[projection.Parked] >= 1
	}},
	{"A corrected order: the right event came under the same version, and closed the letter",
		func(o *reference.Order, c projection.Counts) bool {
			return o.Status == "ok" && c[projection.Illegal] == 1 && o.Version >= 4 && c[projection.Duplicate] == 0
		}},
}

// printExamples shows one order of each kind, as the database has it.
func (s *services) printExamples(ctx context.Context, out io.Writer, v *verification, print func(io.Writer, pgstore.Timeline) error) error {
	reader := pgstore.NewReader(s.pool)
	for _, e := range examples {
		i := slices.IndexFunc(v.result.Orders, func(o reference.Order) bool {
			c := v.perKey[o.OrderID]
			return c != nil && o.Version <= 10 && e.fits(&o, *c)
		})
		if i < 0 {
			continue
		}
		o := &v.result.Orders[i]
		timeline, err := reader.Timeline(ctx, o.OrderID)
		if err != nil {
			return fmt.Errorf("reading the timeline of %s: %w", o.OrderID, err)
		}
		fmt.Fprintf(out, "\n%s", e.title)
		if n := v.perKey[o.OrderID][projection.Duplicate]; n > 0 {
			fmt.Fprintf(out, " (%d)", n)
		}
		fmt.Fprintln(out, ".")
		if err := print(out, timeline); err != nil {
			return err
		}
	}
	return nil
}

func printDifferences(out io.Writer, report *compare.Report) {
	fmt.Fprintf(out, "\nDIFFERENT: %d differences between the database and the fold\n", report.Total)
	for i, d := range report.Differences {
		if i == shownDifferences {
			fmt.Fprintf(out, "  … and %d more\n", report.Total-i)
			break
		}
		fmt.Fprintf(out, "  %s\n", d)
	}
}

func printVerified(out io.Writer, v *verification, total time.Duration) {
	rows := v.report.Rows
	fmt.Fprintf(out, `
verified: %d records were folded once more, by code that shares nothing with the projector,
and the database holds exactly that: %d orders, %d waiting for their first event, %d ledger entries,
%d parked events, %d dead letters, and the counts and offsets of %d partitions (%.1f s in all).
`, v.records, rows["orders"], rows["waiting_orders"], rows["order_events"], rows["parked_events"], rows["dead_letters"],
		rows["projection_watermarks"], total.Seconds())
}
