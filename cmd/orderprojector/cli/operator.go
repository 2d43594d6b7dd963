package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// operating is what the commands need that act on letters, gaps and decisions.
type operating struct {
	cfg      config.Config
	logger   *slog.Logger
	store    *pgstore.Store
	reader   *pgstore.Reader
	operator *projection.Operator
}

func (o *operating) group() string { return o.cfg.Kafka.Group }

// kafkaNeed says how much an action depends on Kafka.
type kafkaNeed bool

const (
	kafkaRequired kafkaNeed = true
	// kafkaOptional is for what asks Kafka only for an older record to compare with, which most of the time nobody needs.
	kafkaOptional kafkaNeed = false
)

// addOperatorFlags adds the settings that an action on letters, gaps or decisions uses.
func addOperatorFlags(cmd *cobra.Command) {
	addConfigFlags(cmd, config.SectionKafka, config.SectionDatabase)
	addSettingFlags(cmd, "group", "topic")
}

// withOperator runs an action on the database, whose schema it checks first. There is no
// deadline for all of it: each transaction has its own.
func (env *Env) withOperator(cmd *cobra.Command, need kafkaNeed, act func(context.Context, *operating) error) error {
	sections := []config.Section{config.SectionDatabase, config.SectionGroup}
	if need == kafkaRequired {
		sections = append(sections, config.SectionKafka)
	}
	cfg, err := env.loadConfig(cmd, sections...)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	o := &operating{cfg: cfg, logger: env.logger(cfg.Log)}
	pool, err := app.OpenPool(ctx, cfg.Database, app.WritePool, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	want, err := app.SchemaVersion()
	if err != nil {
		return err
	}
	o.store, o.reader = pgstore.New(pool), pgstore.NewReader(pool)
	if err := checkSchemaWithin(ctx, o.reader, cfg, want); err != nil {
		return err
	}
	operatorConfig := projection.OperatorConfig{
		Group: cfg.Kafka.Group, Topic: cfg.Kafka.Topic, Store: o.store, Older: noKafka{}, Logger: o.logger,
		Timeout: cfg.Database.StatementTimeout + time.Second,
	}
	if err := cfg.Validate(config.SectionKafka); err == nil {
		client := app.KafkaClient(cfg.Kafka)
		records, err := kafkaio.NewRecordReader(client, o.logger)
		if err != nil {
			return err
		}
		defer records.Close()
		records.TopicIDs = o.reader.TopicIDs
		topics, err := kafkaio.NewTopicReader(client, o.logger)
		if err != nil {
			return err
		}
		defer topics.Close()
		operatorConfig.Older, operatorConfig.Log = records, topics
	}
	if o.operator, err = projection.NewOperator(operatorConfig); err != nil {
		return err
	}
	return translate(act(ctx, o))
}

func checkSchemaWithin(ctx context.Context, reader *pgstore.Reader, cfg config.Config, want int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*(cfg.Database.ConnectTimeout+cfg.Database.StatementTimeout))
	defer cancel()
	return reader.CheckSchema(ctx, want, cfg.Database.AllowNewerSchema)
}

// translate gives errors of actions their exit code.
func translate(err error) error {
	var missing *projection.NotFoundError
	if errors.As(err, &missing) || errors.Is(err, pgstore.ErrNotFound) {
		return &Error{Code: ExitNotFound, Err: err}
	}
	return err
}

// noKafka stands for a Kafka that was not configured.
type noKafka struct{}

// ReadRecords implements projection.RecordReader.
func (noKafka) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return &Error{
		Code: ExitFailed, Err: errors.New("an older record has to be read again to compare with, and it is not said where Kafka is"),
		Advice: "set KAFKA_BOOTSTRAP_SERVERS",
	}
}

// addExecuteFlag adds --execute to an action that is only tried without it.
func addExecuteFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("execute", false, "really do it (default: a dry run, which shows what would happen)")
}

func (env *Env) sayDryRun(execute bool) {
	if !execute {
		fmt.Fprintln(env.Stderr, "dry run: nothing was changed; --execute does it")
	}
}

// parseIDs reads letter IDs, as arguments.
func parseIDs(args []string) ([]int64, error) {
	ids := make([]int64, 0, len(args))
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usageError("%q is not an ID", arg)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// timeValue is a flag that takes an RFC 3339 time, or a duration that reaches back from now.
type timeValue struct {
	at   time.Time
	text string
	now  func() time.Time
}

func (v *timeValue) String() string { return v.text }
func (v *timeValue) Type() string   { return "time" }
func (v *timeValue) Set(text string) error {
	now := time.Now
	if v.now != nil {
		now = v.now
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		v.at, v.text = at, text
		return nil
	}
	ago, err := parseDuration(text)
	if err != nil || ago < 0 {
		return fmt.Errorf("%q is neither an RFC 3339 time nor a duration such as 90m or 7d", text)
	}
	v.at, v.text = now().Add(-ago), text
	return nil
}

// durationValue is a flag that takes a duration, in days too.
type durationValue struct {
	d    time.Duration
	text string
}

func (v *durationValue) String() string { return v.text }
func (v *durationValue) Type() string   { return "duration" }
func (v *durationValue) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 90m or 30d", text)
	}
	v.d, v.text = d, text
	return nil
}

// parseDuration reads a duration, with days too.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || n > 36500 {
			return 0, fmt.Errorf("%q is not a duration", text)
		}
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	return time.ParseDuration(text)
}

// dueValue is a flag that takes an RFC 3339 time, or a duration from now on.
type dueValue struct{ timeValue }

// Set implements pflag.Value.
func (v *dueValue) Set(text string) error {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		v.at, v.text = at, text
		return nil
	}
	in, err := parseDuration(text)
	if err != nil || in < 0 {
		return fmt.Errorf("%q is neither an RFC 3339 time nor a duration such as 4h or 2d", text)
	}
	v.at, v.text = time.Now().Add(in), text
	return nil
}

// cascadeTable shows what becomes of events that were parked behind something.
func cascadeTable(t *tableWriter, title string, drained []projection.DrainedEvent) {
	const shown = 50
	if len(drained) == 0 {
		return
	}
	t.section(title)
	t.row("VERSION", "EVENT", "TYPE", "OUTCOME", "WHY")
	for i, e := range drained {
		if i == shown {
			t.row(fmt.Sprintf("and %d more", len(drained)-shown))
			return
		}
		t.row(strconv.FormatInt(e.Version, 10), e.EventID, e.Type, e.Outcome.String(), e.Detail)
	}
}

func standingCell(s *projection.Standing) string {
	if s == nil {
		return "-"
	}
	waiting := &s.WaitingFor
	if s.WaitingFor == 0 {
		waiting = nil
	}
	return fmt.Sprintf("version %d, %s; %s", s.Version, textCell(s.State), projectionCell(string(s.Status), waiting, false))
}
