package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	earliest                    bool
	fromOffset, untilOffset     int64
	fromDatetime, untilDatetime string
	fromDuration                time.Duration
	orders                      []string
	execute                     bool
	rate                        float64
	resume                      string
	limit                       int
	by                          *byFlags
}

func newReplayCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay (--from-earliest | --from-offset N | --from-datetime T | --from-duration D)",
		Short: "Read a stretch of the topic again: find what is missing, and apply it",
		Long: `Read a stretch of the topic again, up to the end that it has now, and decide every
record as the projector does. It reads with an assignment of its own: it joins no group, commits no
offset, and members go on meanwhile. What is above the watermark is left to them.

Without --execute nothing is written: the outcomes are counted, and the rows that would change are listed. With
--execute, what is missing is applied through the same guards. Rows that differ from their records
are not overwritten: they are listed, with the command that repairs them.

With --consumer loyalty or notifications, the records are those of the consumer beside the projector, and its side-effect
policy decides what is done about events that it has not consumed: points are added, notifications are recorded as suppressed
and never sent.

A partition without a record at or after the time says so and is left alone.

Exit code 0: done. 2: refused, nothing was done. 3: rows differ that a replay does not repair.
4: no partition has a record at or after the time. 130: interrupted.`,
		Example: `  orderprojector replay --from-earliest
  orderprojector replay --topic orders.events:0,1 --from-datetime 2026-01-01T14:00:00Z
  orderprojector replay --from-duration 2h --orders o-1001 --execute --comment "rows deleted by hand"
  orderprojector replay --consumer loyalty --from-earliest --execute --comment "points of a lost table"
  orderprojector replay --from-earliest --execute --rate 5000 --resume replay.state --comment "restored backup"`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase)
	out := addOutputFlag(cmd)
	f := &replayFlags{limit: 100}
	flags := cmd.Flags()
	flags.BoolVar(&f.earliest, "from-earliest", false, "begin with the first record that exists")
	flags.Int64Var(&f.fromOffset, "from-offset", 0, "begin with this offset")
	flags.StringVar(&f.fromDatetime, "from-datetime", "", "begin with the first record at or after this time (RFC 3339 with zone)")
	flags.DurationVar(&f.fromDuration, "from-duration", 0, "begin with the first record of the last so long, such as 90m")
	flags.Int64Var(&f.untilOffset, "until-offset", 0, "end before this offset")
	flags.StringVar(&f.untilDatetime, "until-datetime", "", "end before the first record at or after this time")
	flags.StringSliceVar(&f.orders, "orders", nil, "only records of these order IDs, separated by commas")
	flags.BoolVar(&f.execute, "execute", false, "apply what is missing; without it, nothing is written")
	flags.Float64Var(&f.rate, "rate", 0, "records per second (default as fast as possible)")
	flags.StringVar(&f.resume, "resume", "", "file to keep the position in; if it exists, go on from there")
	flags.IntVar(&f.limit, "limit", f.limit, "list at most so many orders that change or differ; all are counted")
	cmd.MarkFlagsMutuallyExclusive("from-earliest", "from-offset", "from-datetime", "from-duration")
	cmd.MarkFlagsMutuallyExclusive("until-offset", "until-datetime")
	f.by = addByFlags(cmd, false)
	consumer := addConsumerFlag(cmd)
	addSettingFlags(cmd, "loyalty-group", "notifications-group")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(consumers, *consumer) {
			return usageError("--consumer %q is not one of %s", *consumer, strings.Join(consumers, ", "))
		}
		bounds, err := f.bounds(cmd)
		if err != nil {
			return err
		}
		if *consumer != projectorConsumer {
			return env.replayConsumer(cmd, *consumer, f, bounds, out)
		}
		var view *replayView
		err = env.withReading(cmd, func(ctx context.Context, r *reading) (err error) {
			view, err = env.replay(ctx, r, f, bounds)
			return err
		})
		if view == nil {
			return err
		}
		if printed := out.print(env.Stdout, view, func(t *tableWriter) { replayTable(t, view) }); printed != nil {
			return errors.Join(err, printed)
		}
		if err != nil {
			return err
		}
		return view.verdict()
	}
	return cmd
}

// bounds checks the flags, and takes the partitions off the topic's.
func (f *replayFlags) bounds(cmd *cobra.Command) (replayBounds, error) {
	flags := cmd.Flags()
	b := replayBounds{earliest: f.earliest, fromText: f.fromDatetime, untilText: f.untilDatetime}
	if flags.Changed("topic") {
		topic, partitions, err := splitTopic(flags.Lookup("topic").Value.String())
		if err != nil {
			return b, err
		}
		if err := flags.Set("topic", topic); err != nil {
			return b, usageError("--topic: %v", err)
		}
		b.partitions = partitions
	}
	moment := func(flag, text string) (*time.Time, error) {
		if !flags.Changed(flag) {
			return nil, nil
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, usageError("--%s %q is not a time like 2026-01-01T14:00:00Z", flag, text)
		}
		return &at, nil
	}
	var err error
	if b.fromTime, err = moment("from-datetime", f.fromDatetime); err != nil {
		return b, err
	}
	if b.untilTime, err = moment("until-datetime", f.untilDatetime); err != nil {
		return b, err
	}
	if flags.Changed("from-duration") {
		at := time.Now().Add(-f.fromDuration)
		b.fromTime, b.fromText = &at, at.UTC().Format(time.RFC3339)
	}
	if flags.Changed("from-offset") {
		b.fromOffset = &f.fromOffset
	}
	if flags.Changed("until-offset") {
		b.untilOffset = &f.untilOffset
	}
	switch {
	case f.fromOffset < 0 || f.untilOffset < 0:
		return b, usageError("an offset must not be negative")
	case f.fromDuration < 0 || flags.Changed("from-duration") && f.fromDuration == 0:
		return b, usageError("--from-duration must be positive")
	case f.rate < 0 || f.limit < 1:
		return b, usageError("--rate must not be negative, and --limit must be positive")
	case b.fromOffset != nil && b.untilOffset != nil && f.untilOffset < f.fromOffset:
		return b, usageError("--until-offset is below --from-offset")
	case b.fromTime != nil && b.untilTime != nil && b.untilTime.Before(*b.fromTime):
		return b, usageError("--until-datetime is before the time to begin with")
	case flags.Changed("orders") && len(f.orders) == 0:
		return b, usageError("--orders names no order")
	}
	f.orders = slices.Compact(slices.Sorted(slices.Values(f.orders)))
	return b, nil
}

func (b replayBounds) begins() bool { return b.earliest || b.fromOffset != nil || b.fromTime != nil }

func (env *Env) replay(ctx context.Context, r *reading, f *replayFlags, b replayBounds) (*replayView, error) {
	by := projection.By{}
	if f.execute {
		var err error
		if by, err = f.by.by(); err != nil {
			return nil, err
		}
	}
	state, err := env.replayState(ctx, r, f, b)
	if err != nil {
		return nil, err
	}
	view := &replayView{Topic: state.Topic, Group: state.Group, DryRun: !f.execute, limit: f.limit}
	cfg := projection.ReplayConfig{
		Group: state.Group, Older: r.records, Log: r.log, Letters: r.reader, Logger: env.logger(r.cfg.Log),
		Orders: f.orders, Execute: f.execute, Rate: f.rate, Marks: map[projection.TopicPartition]projection.Watermark{},
	}
	marks := map[int32]projection.Watermark{}
	if len(state.Partitions) > 0 {
		if marks, err = r.reader.Watermarks(ctx, state.Group, state.Topic, state.Partitions[0].log.TopicID); err != nil {
			return nil, err
		}
	}
	for _, s := range state.Partitions {
		if s.From < s.Until {
			cfg.Ranges = append(cfg.Ranges, projection.LogRange{TopicPartition: s.log, From: s.From, Until: s.Until})
			cfg.Marks[s.log] = marks[s.Partition]
		}
	}
	pool, err := app.OpenPool(ctx, r.cfg.Database, app.WritePool, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	store := pgstore.New(pool)
	cfg.Store = store
	if f.execute && len(cfg.Ranges) > 0 {
		if err := store.Audit(ctx, projection.AuditEntry{
			Actor: by.Actor, Action: "replay", Target: "topic " + state.Topic, Comment: by.Comment,
			After: map[string]any{"partitions": state.Partitions, "orders": f.orders},
		}); err != nil {
			return nil, err
		}
	}
	line := progress.New(env.Stderr, isTerminal(env.Stderr))
	defer line.Clear()
	var saving error
	cfg.Progress = state.track(line, &saving)
	began := time.Now()
	result, err := projection.Replay(ctx, cfg)
	if result != nil {
		view.fill(result, state.Partitions, time.Since(began))
	}
	if err != nil {
		if state.path != "" {
			err = fmt.Errorf("%w (what was done is kept in %s)", err, state.path)
		}
		return view, errors.Join(err, state.save(true))
	}
	return view, errors.Join(saving, state.remove())
}

// replayState plans a replay, or takes up the one of the --resume file.
func (env *Env) replayState(ctx context.Context, r *reading, f *replayFlags, b replayBounds) (*replayState, error) {
	ranges, err := r.log.Ranges(ctx, r.cfg.Kafka.Topic)
	if err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("topic %s has no partitions", r.cfg.Kafka.Topic)
	}
	log := ranges[0].TopicPartition
	state := &replayState{
		Topic: log.Topic, TopicID: log.TopicID.String(), Group: r.cfg.Kafka.Group, Execute: f.execute, Orders: f.orders, path: f.resume,
	}
	kept, err := loadReplayState(f.resume)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		if err := kept.check(state); err != nil {
			return nil, err
		}
		kept.Partitions = kept.stretches(log)
		return kept, nil
	}
	if !b.begins() {
		return nil, usageError("say where to begin: --from-earliest, --from-offset, --from-datetime or --from-duration")
	}
	if state.Partitions, err = replayPlan(ctx, r, b); err != nil {
		return nil, err
	}
	return state, state.save(true)
}

// replayView is what a replay found and did.
type replayView struct {
	Topic      string                     `json:"topic"`
	Group      string                     `json:"group"`
	DryRun     bool                       `json:"dry_run"`
	Partitions []replayStretch            `json:"partitions"`
	Records    int64                      `json:"records"`
	Outcomes   map[string]int64           `json:"outcomes"`
	Parked     int64                      `json:"events_parked"`
	Changed    int64                      `json:"rows_changed"` // or to be changed, in a dry run
	Changes    []replayChange             `json:"changes"`
	Differing  int                        `json:"rows_differing"`
	Differ     []projection.RowDifference `json:"differing"`
	Repair     string                     `json:"repair_command,omitempty"`
	Seconds    float64                    `json:"seconds"`
	limit      int
}

type replayChange struct {
	OrderID string `json:"order_id"`
	*projection.RowChange
}

func (v *replayView) fill(r *projection.ReplayResult, partitions []replayStretch, took time.Duration) {
	v.Partitions, v.Records, v.Parked, v.Seconds = partitions, r.Records, r.Parked, took.Seconds()
	v.Outcomes = map[string]int64{}
	for _, o := range projection.Outcomes() {
		if n := r.Outcomes[o]; n > 0 {
			v.Outcomes[o.String()] = n
		}
	}
	v.Changed = int64(len(r.Changed)) + r.Beyond
	v.Changes = []replayChange{}
	for _, id := range slices.Sorted(maps.Keys(r.Changed)) {
		if len(v.Changes) == v.limit {
			break
		}
		v.Changes = append(v.Changes, replayChange{id, r.Changed[id]})
	}
	v.Differing = len(r.Differing)
	v.Differ = append([]projection.RowDifference{}, r.Differing[:min(len(r.Differing), v.limit)]...)
	if len(v.Differ) > 0 {
		var ids []string
		for _, d := range v.Differ {
			ids = append(ids, d.OrderID)
		}
		v.Repair = "orderprojector rebuild --orders " + shellWord(strings.Join(ids, ","))
	}
}

// shellWord makes a word that a shell takes as it is.
func shellWord(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/@"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// verdict is the error, and with it the exit code.
func (v *replayView) verdict() error {
	none := len(v.Partitions) > 0
	for _, p := range v.Partitions {
		none = none && p.none
	}
	switch {
	case v.Differing > 0:
		return &Error{
			Code: ExitDifference, Err: fmt.Errorf("%d rows differ from their records, and were not overwritten", v.Differing),
			Advice: v.Repair,
		}
	case none:
		return notFoundError("no partition has a record to begin with: nothing was done")
	}
	return nil
}

func replayTable(t *tableWriter, v *replayView) {
	t.field("topic", v.Topic)
	t.field("group", v.Group)
	replayedTable(t, v.DryRun, v.Records, v.Seconds, v.Partitions)
	t.section("OUTCOMES")
	for _, o := range projection.Outcomes() {
		if n := v.Outcomes[o.String()]; n > 0 {
			t.field(o.String(), strconv.FormatInt(n, 10))
		}
	}
	title := "CHANGED ROWS"
	if v.DryRun {
		title = "ROWS THAT --execute WOULD CHANGE"
	}
	t.section(fmt.Sprintf("%s: %d", title, v.Changed))
	if len(v.Changes) > 0 {
		t.row("ORDER", "BEFORE", "AFTER")
		for _, c := range v.Changes {
			before := "no row"
			if c.Before != nil {
				before = rowCell(*c.Before)
			}
			t.row(c.OrderID, before, rowCell(c.After))
		}
	}
	t.section(fmt.Sprintf("ROWS THAT DIFFER, AND ARE NOT OVERWRITTEN: %d", v.Differing))
	if len(v.Differ) > 0 {
		t.row("ORDER", "CAUSE")
		for _, d := range v.Differ {
			t.row(d.OrderID, d.Cause)
		}
	}
}

// replayedTable is what the tables of both kinds of replay say of the stretch that was read.
func replayedTable(t *tableWriter, dryRun bool, records int64, seconds float64, partitions []replayStretch) {
	mode := "executed"
	if dryRun {
		mode = "dry run: nothing was written"
	}
	t.field("mode", mode)
	t.field("records", fmt.Sprintf("%d in %.1f s", records, seconds))
	t.section("PARTITIONS")
	t.row("PARTITION", "FROM", "UNTIL", "DONE UP TO", "WATERMARK", "LOG END", "NOTE")
	for _, p := range partitions {
		t.row(strconv.Itoa(int(p.Partition)), strconv.FormatInt(p.From, 10), strconv.FormatInt(p.Until, 10), strconv.FormatInt(p.Next, 10),
			strconv.FormatInt(p.Watermark, 10), strconv.FormatInt(p.LogEnd, 10), p.Note)
	}
}

func rowCell(s projection.Standing) string {
	text := fmt.Sprintf("version %d", s.Version)
	if s.State != "" {
		text += ", " + s.State
	}
	if s.Status != projection.StatusOK {
		text += fmt.Sprintf(", %s for version %d", s.Status, s.WaitingFor)
	}
	return text
}
