package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/verify"
)

func newVerifyCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the rows with an independent fold of the topic",
		Long: `Fold the topic by the rules alone, without the code that projects, and compare every
order with its row, its ledger, its parked events and its dead letters. Nothing is written.

It may run while members project: it compares up to the watermarks of one moment; what
is above them is not projected yet, and no difference. What differs is looked at again
for a few seconds before it is reported.

Exit code 0: equal. 3: something differs, or cannot be compared because retention
removed the beginning (--allow-removed lets that pass), or with --event-ids an event ID is used by two orders.
1: it could not be finished.`,
		Example: `  orderprojector verify
  orderprojector verify --sample 1000 -o json
  orderprojector verify --orders o-1001,o-1002
  orderprojector verify --event-ids`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase)
	out := addOutputFlag(cmd)
	flags := cmd.Flags()
	var chosen verify.Selection
	var eventIDs, allowRemoved bool
	var limit int
	flags.IntVar(&chosen.Sample, "sample", 0, "only so many orders, chosen by a hash of their IDs")
	flags.Uint64Var(&chosen.Seed, "seed", 0, "seed of the sample (default a random one, which is printed)")
	flags.StringSliceVar(&chosen.Orders, "orders", nil, "only these order IDs, separated by commas")
	flags.BoolVar(&eventIDs, "event-ids", false, "also find event IDs that several orders use")
	flags.BoolVar(&allowRemoved, "allow-removed", false, "orders whose first events are no longer in the topic are no failure")
	flags.IntVar(&limit, "limit", verify.DefaultMaxListed, "list at most so many orders that differ; all are counted")
	cmd.MarkFlagsMutuallyExclusive("sample", "orders")
	cmd.MarkFlagsMutuallyExclusive("sample", "event-ids")
	cmd.MarkFlagsMutuallyExclusive("orders", "event-ids")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.Changed("sample") && chosen.Sample < 1 {
			return usageError("--sample must be positive")
		}
		if flags.Changed("orders") && len(chosen.Orders) == 0 {
			return usageError("--orders names no order")
		}
		if limit < 1 {
			return usageError("--limit must be positive")
		}
		if chosen.Sample > 0 && !flags.Changed("seed") {
			chosen.Seed = rand.Uint64N(1 << 32) // short enough to be typed again
		}
		var report *verify.Report
		err := env.withReading(cmd, func(ctx context.Context, r *reading) (err error) {
			line := progress.New(env.Stderr, isTerminal(env.Stderr))
			defer line.Clear()
			report, err = verify.Run(ctx, verify.Config{
				Group: r.cfg.Kafka.Group, Topic: r.cfg.Kafka.Topic, Log: r.log, Records: r.records, DB: r.reader,
				Logger: env.logger(r.cfg.Log), Selection: chosen, EventIDs: eventIDs, MaxListed: limit,
				Progress: func(p verify.Progress) {
					if line.Due() {
						line.Update(progressText("folded", p.Records, p.Total, p.Elapsed))
					}
				},
			})
			return err
		})
		if err != nil {
			return err
		}
		if err := out.print(env.Stdout, report, func(t *tableWriter) { verifyTable(t, report) }); err != nil {
			return err
		}
		return verdict(report, allowRemoved)
	}
	return cmd
}

// verdict is the error, and with it the exit code, of a report.
func verdict(r *verify.Report, allowRemoved bool) error {
	advice := "see docs/replay.md: replay --execute applies what is missing, rebuild --orders puts single orders right, and rebuild all of them"
	switch {
	case !r.Same():
		return &Error{Code: ExitDifference, Advice: advice, Err: fmt.Errorf(
			"%d of %d orders differ, %d letters without an order, %d counts", r.Differing, r.Orders, len(r.Letters), len(r.Accounts))}
	case r.Unverifiable > 0 && !allowRemoved:
		return &Error{
			Code: ExitDifference, Err: fmt.Errorf("%d orders cannot be compared: their first events are no longer in the topic", r.Unverifiable),
			Advice: "--allow-removed lets that pass",
		}
	case len(r.EventIDs) > 0:
		return differenceError("%d event IDs are used by more than one order", len(r.EventIDs))
	}
	return nil
}

func verifyTable(t *tableWriter, r *verify.Report) {
	scope := r.Scope
	if r.Scope == "sample" {
		scope += fmt.Sprintf(", --seed %d", r.Seed)
	}
	t.field("topic", r.Topic)
	t.field("group", r.Group)
	t.field("scope", scope)
	t.field("read", fmt.Sprintf("%d offsets in %.1f s", r.Records, r.Seconds))
	t.field("orders", fmt.Sprintf("%d compared, %d equal, %d differ, %d cannot be compared", r.Orders, r.Equal, r.Differing, r.Unverifiable))
	t.field("held back", fmt.Sprintf("%d waiting for a version, %d blocked by a dead letter (in the topic as well: no difference)", r.Waiting, r.Blocked))
	t.section("PARTITIONS")
	t.row("PARTITION", "LOG START", "WATERMARK", "LOG END", "NOT YET PROJECTED")
	for _, p := range r.Partitions {
		mark := strconv.FormatInt(p.Watermark, 10)
		if p.Unassigned {
			mark = "-"
		}
		t.row(strconv.Itoa(int(p.Partition)), strconv.FormatInt(p.LogStart, 10), mark, strconv.FormatInt(p.LogEnd, 10), strconv.FormatInt(p.NotYet, 10))
	}
	if len(r.Differences) > 0 {
		t.section("DIFFERENCES")
		t.row("ORDER", "CAUSE")
		for _, d := range r.Differences {
			for i, f := range d.Findings {
				id := d.OrderID
				if i > 0 {
					id = ""
				}
				t.row(id, f.String())
			}
		}
	}
	if len(r.Letters) > 0 {
		t.section("DEAD LETTERS WITHOUT AN ORDER")
		for _, f := range r.Letters {
			t.row(f.String())
		}
	}
	if len(r.Accounts) > 0 {
		t.section("COUNTS")
		t.row("PARTITION", "COLUMN", "EXPECTED", "FOUND")
		for _, a := range r.Accounts {
			t.row(strconv.Itoa(int(a.Partition)), a.Column, strconv.FormatInt(a.Expected, 10), strconv.FormatInt(a.Found, 10))
		}
	}
	if len(r.EventIDs) > 0 {
		t.section("EVENT IDS OF SEVERAL ORDERS")
		t.row("EVENT", "ORDERS")
		for _, s := range r.EventIDs {
			t.row(s.EventID, strings.Join(s.Orders, ", "))
		}
	}
	for _, note := range r.Notes {
		t.section("note: " + note)
	}
}
