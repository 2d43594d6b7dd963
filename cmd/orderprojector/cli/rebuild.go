package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/rebuild"
)

// rebuildBatches is how many of a member's batches a rebuild makes one of. Nobody waits for its events
// to be seen, and the more of an order's events come together, the fewer rows are written.
const rebuildBatches = 2

// rebuildFlags are the flags of rebuild and of rebuild rollback.
type rebuildFlags struct {
	maxDiff     int64
	dryRun      bool
	lockTimeout time.Duration
	giveUpAfter time.Duration
	limit       int
	orders      []string
	execute     *bool
	by          *byFlags
	out         *output
}

func (f *rebuildFlags) add(cmd *cobra.Command) {
	addOperatorFlags(cmd)
	addSettingFlags(cmd, "batch-max-records", "batch-max-bytes", "memory-limit", "writers")
	f.out = addOutputFlag(cmd)
	f.by = addByFlags(cmd, false)
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "compare, and exchange nothing")
	flags.DurationVar(&f.lockTimeout, "lock-timeout", rebuild.DefaultLockTimeout, "the longest that readers are made to wait by one attempt to exchange the tables")
	flags.DurationVar(&f.giveUpAfter, "give-up-after", rebuild.DefaultPatience, "how long to keep trying to exchange the tables")
	flags.IntVar(&f.limit, "limit", rebuild.DefaultMaxListed, "list at most so many differences; all are counted")
}

func (f *rebuildFlags) check() error {
	switch {
	case f.lockTimeout <= 0 || f.giveUpAfter <= 0:
		return usageError("--lock-timeout and --give-up-after must be positive")
	case f.limit < 1:
		return usageError("--limit must be positive")
	case f.maxDiff < 0:
		return usageError("--max-diff must not be negative")
	}
	return nil
}

func newRebuildCommand(env *Env) *cobra.Command {
	f := &rebuildFlags{}
	cmd := &cobra.Command{
		Use:   "rebuild --comment TEXT",
		Short: "Project the whole topic anew beside the live tables, and exchange them",
		Long: `Project the whole topic anew into tables of their own while the live ones serve, catch up with
the members, compare, and exchange the tables in one short transaction. Members follow by themselves. Nothing is
exchanged while more orders and dead letters differ than --max-diff says: the differences are listed, and the rebuilt
tables are dropped. The tables that were replaced are kept, for "rebuild rollback", until the next exchange.

Each partition is read up to the group's watermark; one of which the database holds nothing, to its end. It is refused
when retention has removed records that orders were made from.

With --orders, only these orders are folded anew, in place, each in one transaction; that is a dry run unless --execute is given.

Exit code 0: done. 1: failed, refused, or another rebuild is running. 3: too much differs. 130: interrupted. After
everything but 0 the live tables are what they were.`,
		Example: `  orderprojector rebuild --dry-run --comment "does the new release agree?"
  orderprojector rebuild --comment "rows changed by hand" --max-diff 12
  orderprojector rebuild --orders o-1001 --comment "row changed by hand" --execute`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.Flags().Int64Var(&f.maxDiff, "max-diff", 0, "exchange the tables if no more orders and dead letters differ")
	cmd.Flags().StringSliceVar(&f.orders, "orders", nil, "fold only these orders anew, in place")
	f.execute = cmd.Flags().Bool("execute", false, "with --orders: really do it (default: a dry run, which shows what would happen)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := cmd.Flags().Changed
		switch {
		case given("orders") && (given("max-diff") || given("dry-run") || given("lock-timeout") || given("give-up-after")):
			return usageError("--orders repairs orders in place: --max-diff, --dry-run, --lock-timeout and --give-up-after do not belong to it")
		case given("orders") && len(f.orders) == 0:
			return usageError("--orders names no order")
		case given("orders"):
			return env.rebuildOrders(cmd, f.out, f.by, f.orders, *f.execute)
		case given("execute"):
			return usageError("--execute belongs to --orders; the whole is exchanged unless --dry-run is given")
		}
		return env.rebuild(cmd, f, rebuild.Run)
	}
	cmd.AddCommand(newRebuildStatusCommand(env), newRebuildAbortCommand(env), newRebuildRollbackCommand(env))
	return cmd
}

func newRebuildRollbackCommand(env *Env) *cobra.Command {
	f := &rebuildFlags{}
	cmd := &cobra.Command{
		Use:   "rollback --comment TEXT",
		Short: "Catch up the tables that the last rebuild replaced, and exchange them back",
		Long: `Catch up the tables that the last rebuild replaced with what the members have projected since, and
exchange them back. What the rebuild put right is wrong again afterwards, and orders can be seen at a lower version than
before: that is what is asked for. The rebuilt tables are kept in their place, so that a second rollback takes the first one back.`,
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return env.rebuild(cmd, f, rebuild.Rollback) }
	return cmd
}

func (env *Env) rebuild(cmd *cobra.Command, f *rebuildFlags, run func(context.Context, rebuild.Config) (*rebuild.Report, error)) error {
	if err := f.check(); err != nil {
		return err
	}
	by, err := f.by.by()
	if err != nil {
		return err
	}
	return env.withReading(cmd, func(ctx context.Context, r *reading) error {
		limitMemory(r.cfg)
		pool, err := app.OpenPool(ctx, r.cfg.Database, app.RebuildPool, 4)
		if err != nil {
			return err
		}
		defer pool.Close()
		line := progress.New(env.Stderr, isTerminal(env.Stderr))
		defer line.Clear()
		phase := rebuild.Filling
		report, err := run(ctx, rebuild.Config{
			Group: r.cfg.Kafka.Group, Topic: r.cfg.Kafka.Topic, Log: r.log, Records: r.records, DB: pool,
			OpenShadow: func(ctx context.Context, searchPath string) (*pgxpool.Pool, error) {
				return app.OpenShadowPool(ctx, r.cfg.Database, r.cfg.Database.Writers+2, searchPath)
			},
			Logger: env.logger(r.cfg.Log), Hint: app.Hint, By: by,
			MaxDifferences: f.maxDiff, DryRun: f.dryRun, MaxListed: f.limit, LockTimeout: f.lockTimeout, Patience: f.giveUpAfter,
			Writers:      r.cfg.Database.Writers,
			BatchRecords: rebuildBatches * r.cfg.Projection.BatchMaxRecords, BatchBytes: rebuildBatches * int64(r.cfg.Projection.BatchMaxBytes),
			BatchTimeout: r.cfg.Database.StatementTimeout + time.Second,
			Progress: func(p rebuild.Progress) {
				if p.Phase != phase {
					phase = p.Phase
					line.Clear()
					fmt.Fprintf(env.Stderr, "%s after %s\n", phase, p.Elapsed.Round(time.Second/10))
				}
				switch {
				case !line.Due():
				case p.Phase == rebuild.Filling:
					line.Update(progressText("rebuilt", p.Done, p.Total, p.Elapsed))
				default:
					line.Update(fmt.Sprintf("%s, %s so far", p.Phase, p.Elapsed.Round(time.Second)))
				}
			},
		})
		line.Clear()
		var differs *rebuild.DifferenceError
		if report != nil && (err == nil || errors.As(err, &differs)) {
			if printed := f.out.print(env.Stdout, report, func(t *tableWriter) { rebuildTable(t, report) }); printed != nil {
				return errors.Join(err, printed)
			}
		}
		return rebuildVerdict(report, err)
	})
}

// rebuildVerdict is the error, and with it the exit code.
func rebuildVerdict(report *rebuild.Report, err error) error {
	var differs *rebuild.DifferenceError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &differs):
		return &Error{Code: ExitDifference, Err: err}
	case errors.As(err, &pgErr) && pgErr.Code == "42501":
		return &Error{
			Code: ExitFailed, Err: err,
			Advice: "a rebuild creates tables and exchanges them: run it as the owner of the tables, the role that runs migrate up, which may create schemas in the database",
		}
	case err == nil && report.DryRun && report.Differing() > 0:
		return &Error{
			Code: ExitDifference, Err: fmt.Errorf("%d orders and %d dead letters differ", report.DifferingOrders, report.DifferingLetters),
			Advice: fmt.Sprintf("if the rebuilt tables are right: rebuild --max-diff %d", report.Differing()),
		}
	}
	return translate(err)
}

func rebuildTable(t *tableWriter, r *rebuild.Report) {
	t.field(string(r.Kind), strconv.FormatInt(r.ID, 10))
	t.field("topic", r.Topic)
	t.field("group", r.Group)
	outcome := map[rebuild.Status]string{
		rebuild.StatusSwapped:  "the tables were exchanged",
		rebuild.StatusCompared: "dry run: nothing was exchanged",
		rebuild.StatusDiffers:  "nothing was exchanged",
	}[r.Status]
	t.field("outcome", outcome)
	t.field("read", fmt.Sprintf("%d offsets in %.1f s (%.0f/s), all done in %.1f s", r.Records, r.Filling, r.Rate, r.Seconds))
	t.field("orders", fmt.Sprintf("%d rebuilt, %d differ; %d dead letters differ", r.Orders, r.DifferingOrders, r.DifferingLetters))
	if r.Beyond > 0 {
		t.field("new", fmt.Sprintf("%d orders of partitions that were not projected yet", r.Beyond))
	}
	t.field("waits", fmt.Sprintf("members up to %.2f s, readers up to %.2f s, in %d attempts", r.WritersWaited, r.ReadersWaited, r.Attempts))
	if r.Generation > 0 {
		t.field("generation", strconv.FormatInt(r.Generation, 10))
	}
	t.section("PARTITIONS")
	t.row("PARTITION", "LOG START", "LOG END", "REBUILT UP TO", "NOTE")
	for _, p := range r.Partitions {
		note := ""
		if p.Beyond {
			note = "nothing of it was projected yet: read to its end"
		}
		t.row(strconv.Itoa(int(p.Partition)), strconv.FormatInt(p.LogStart, 10), strconv.FormatInt(p.LogEnd, 10), strconv.FormatInt(p.Next, 10), note)
	}
	if r.Differing() == 0 {
		return
	}
	var causes []string
	for _, c := range r.Causes {
		causes = append(causes, fmt.Sprintf("%d %s", c.Count, c.Cause))
	}
	t.section("DIFFERENCES: " + strings.Join(causes, ", "))
	t.row("ORDER", "CAUSE")
	for _, d := range r.Differences {
		t.row(textCell(d.OrderID), d.String())
	}
	if more := r.Differing() - int64(len(r.Differences)); more > 0 {
		t.row(fmt.Sprintf("and %d more", more))
	}
}

// withRebuilds opens the database for a command that looks at rebuilds, or ends one.
func (env *Env) withRebuilds(cmd *cobra.Command, work func(context.Context, *pgxpool.Pool, config.Config) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	pool, err := app.OpenPool(ctx, cfg.Database, app.RebuildPool, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	return translate(work(ctx, pool, cfg))
}

func newRebuildStatusCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the rebuild that runs, and the last ones",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	limit := cmd.Flags().Int("limit", 5, "show at most so many rebuilds, the newest first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 {
			return usageError("--limit must be positive")
		}
		return env.withRebuilds(cmd, func(ctx context.Context, pool *pgxpool.Pool, _ config.Config) error {
			state, err := rebuild.Look(ctx, pool, *limit)
			if err != nil {
				return err
			}
			return out.print(env.Stdout, state, func(t *tableWriter) { rebuildStatusTable(t, state) })
		})
	}
	return cmd
}

func rebuildStatusTable(t *tableWriter, s rebuild.State) {
	running := "no"
	if s.Running {
		running = "yes"
	}
	t.field("running", running)
	if s.Leftovers {
		t.field("leftovers", "of a rebuild that died: the next one, or rebuild abort, removes them")
	}
	if s.Rollback > 0 {
		t.field("rollback", fmt.Sprintf("possible: the tables that rebuild %d replaced are kept", s.Rollback))
	}
	if len(s.Recent) == 0 {
		return
	}
	t.section("REBUILDS")
	t.row("ID", "KIND", "TOPIC", "GROUP", "STATUS", "RECORDS", "DIFFER", "STARTED", "TOOK", "BY", "COMMENT", "FAILURE")
	for _, r := range s.Recent {
		differ, failure := "-", ""
		if r.DifferingOrders != nil && r.DifferingLetters != nil {
			differ = fmt.Sprintf("%d orders, %d letters", *r.DifferingOrders, *r.DifferingLetters)
		}
		if r.Failure != nil {
			failure = *r.Failure
		}
		end := r.UpdatedAt
		if r.FinishedAt != nil {
			end = *r.FinishedAt
		}
		records := strconv.FormatInt(r.Records, 10)
		if r.FinishedAt == nil {
			records += " of " + strconv.FormatInt(r.Total, 10)
		}
		t.row(strconv.FormatInt(r.ID, 10), string(r.Kind), r.Topic, r.Group, string(r.Status), records, differ,
			r.StartedAt.UTC().Format(time.RFC3339), end.Sub(r.StartedAt).Round(time.Second/10).String(), r.Actor, r.Comment, failure)
	}
}

func newRebuildAbortCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abort --comment TEXT",
		Short: "End the rebuild that runs, or remove what is left of one that died",
		Long: `Ask the rebuild that runs, on whichever machine, to stop, and wait until it has; or remove what
is left of one that died. The live tables are what they were.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	wait := cmd.Flags().Duration("wait", time.Minute, "how long to wait for it to stop")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withRebuilds(cmd, func(ctx context.Context, pool *pgxpool.Pool, cfg config.Config) error {
			ctx, cancel := context.WithTimeout(ctx, *wait)
			defer cancel()
			record, err := rebuild.Abort(ctx, pool, by, env.logger(cfg.Log))
			if err != nil {
				return err
			}
			return out.print(env.Stdout, record, func(t *tableWriter) {
				t.field(string(record.Kind), strconv.FormatInt(record.ID, 10))
				t.field("status", string(record.Status))
			})
		})
	}
	return cmd
}
