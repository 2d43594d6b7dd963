package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newOffsetsCommand(env *Env) *cobra.Command {
	return newGroup("offsets", "Look at where Kafka and the database stand, and skip records",
		newOffsetsShowCommand(env), newOffsetsSkipCommand(env))
}

// offsetsView is where a partition stands. What is not known is null.
type offsetsView struct {
	Topic      string `json:"kafka_topic"`
	Partition  int32  `json:"kafka_partition"`
	LogStart   int64  `json:"log_start"`   // first offset that still exists
	LogEnd     int64  `json:"log_end"`     // high watermark: end of what is replicated
	LastStable int64  `json:"last_stable"` // end of what may be read: below open transactions
	Committed  *int64 `json:"committed"`   // by the group, to Kafka
	Watermark  *int64 `json:"watermark"`   // everything below is durable in the database
	Lag        int64  `json:"lag"`         // from the watermark to the high watermark
	// Difference is the commit minus the watermark: above 0, somebody moved the group's offset or the database lost commits.
	Difference *int64 `json:"committed_minus_watermark"`
	Lost       int64  `json:"lost_offsets"`
	SkipTo     *int64 `json:"skip_to,omitempty"` // an operator's skip that the group has not committed yet
	// Transaction is the oldest open one, which holds back what lies behind it.
	Transaction *transactionView `json:"open_transaction,omitempty"`
}

func newOffsetsShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print, per partition, where the log, the group's commits and the database stand",
		Args:  cobra.NoArgs,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
			views, err := env.offsets(ctx, o)
			if err != nil {
				return err
			}
			return out.print(env.Stdout, views, func(t *tableWriter) { offsetsTable(t, views) })
		})
	}
	return cmd
}

func (env *Env) offsets(ctx context.Context, o *operating) ([]offsetsView, error) {
	positions, err := env.positions(ctx, o.cfg)
	if err != nil {
		return nil, err
	}
	views := []offsetsView{}
	for _, p := range positions {
		v := offsetsView{
			Topic: p.Topic, Partition: p.Partition, LogStart: p.LogStart, LogEnd: p.HighWatermark, LastStable: p.LogEnd,
			Transaction: viewTransaction(&p),
		}
		if p.Committed != projection.NoOffset {
			v.Committed = &p.Committed
		}
		mark, found, err := o.reader.WatermarkOf(ctx, projection.WatermarkKey{Group: o.group(), TopicPartition: p.TopicPartition})
		if err != nil {
			return nil, err
		}
		at := p.LogStart
		if found {
			at, v.Watermark, v.Lost = mark.NextOffset, &mark.NextOffset, mark.Lost
			if mark.SkipTo > p.Committed {
				v.SkipTo = &mark.SkipTo
			}
			if v.Committed != nil {
				difference := *v.Committed - mark.NextOffset
				v.Difference = &difference
			}
		}
		v.Lag = max(0, p.HighWatermark-at)
		views = append(views, v)
	}
	return views, nil
}

func offsetsTable(t *tableWriter, views []offsetsView) {
	t.row("TOPIC", "PARTITION", "LOG START", "LOG END", "LAST STABLE", "COMMITTED", "WATERMARK", "LAG", "COMMITTED-WATERMARK", "LOST", "NOTE")
	for _, v := range views {
		note := ""
		switch {
		case v.SkipTo != nil:
			note = fmt.Sprintf("skipped to %d, not committed yet", *v.SkipTo)
		case v.Difference != nil && *v.Difference > 0:
			note = "the commit is ahead of the database and is not followed"
		case v.Watermark != nil && *v.Watermark < v.LogStart:
			note = "unread records were removed from the log"
		case v.Watermark != nil && *v.Watermark > v.LastStable:
			note = "the database is ahead of the log"
		case v.Transaction != nil:
			note = v.Transaction.String()
		}
		t.row(v.Topic, strconv.Itoa(int(v.Partition)), strconv.FormatInt(v.LogStart, 10), strconv.FormatInt(v.LogEnd, 10), strconv.FormatInt(v.LastStable, 10),
			versionCell(v.Committed), versionCell(v.Watermark), strconv.FormatInt(v.Lag, 10), versionCell(v.Difference), strconv.FormatInt(v.Lost, 10), note)
	}
}

// followTimeout is how long a skip waits for running members to commit it.
const followTimeout = 30 * time.Second

func newOffsetsSkipCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skip --partition P --to N --comment TEXT",
		Short: "Skip the records of a partition up to an offset: they are never decided",
		Long: `Skip the records of a partition below an offset: they are never decided, and counted as lost. This is for records that
must not be read at all. An event that cannot be applied stops nobody and needs no skip: see dlq.

The watermark moves forward; running members notice within seconds and go on there. Where the group has no members,
its offset is committed, too. It is a dry run unless --execute is given.`,
		Example: `  orderprojector offsets skip --partition 3 --to 12040 --comment "a gigabyte of test data" --execute`,
		Args:    cobra.NoArgs,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	partition := cmd.Flags().Int32("partition", 0, "which partition (required)")
	to := cmd.Flags().Int64("to", 0, "the next offset to read (required)")
	for _, name := range []string{"partition", "to"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flags are added above
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
			position, err := env.position(ctx, o, *partition)
			if err != nil {
				return err
			}
			if *to > position.LogEnd {
				return usageError("--to %d is beyond the end, the last stable offset %d: what lies behind cannot be read yet", *to, position.LogEnd)
			}
			key := projection.WatermarkKey{Group: o.group(), TopicPartition: position.TopicPartition}
			skip, err := o.store.SkipOffsets(ctx, key, *to, position.Committed, *execute, by)
			if err != nil {
				return err
			}
			view := struct {
				Executed  bool   `json:"executed"`
				Topic     string `json:"kafka_topic"`
				Partition int32  `json:"kafka_partition"`
				pgstore.OffsetSkip
				Committed string `json:"committed,omitempty"`
			}{Executed: *execute, Topic: key.Topic, Partition: key.Partition, OffsetSkip: skip}
			if *execute {
				if view.Committed, err = env.commitSkip(ctx, o, key, *to, position.Committed); err != nil {
					fmt.Fprintln(env.Stderr, "the skip holds, but the commit to Kafka did not succeed:", err)
					view.Committed = "not yet: the next member to start commits it"
				}
			}
			if err := out.print(env.Stdout, view, func(t *tableWriter) {
				t.field("partition", key.String())
				t.field("skipped", fmt.Sprintf("offsets %d to %d: %d", skip.From, skip.To-1, skip.Lost))
				if view.Committed != "" {
					t.field("commit", view.Committed)
				}
			}); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			return nil
		})
	}
	return cmd
}

func (env *Env) position(ctx context.Context, o *operating, partition int32) (kafkaio.GroupPosition, error) {
	positions, err := env.positions(ctx, o.cfg)
	if err != nil {
		return kafkaio.GroupPosition{}, err
	}
	for _, p := range positions {
		if p.Partition == partition {
			return p, nil
		}
	}
	return kafkaio.GroupPosition{}, notFoundError("topic %s has no partition %d, or its leader does not answer", o.cfg.Kafka.Topic, partition)
}

// commitSkip sees to it that the group's offset is not below the skip: it commits
// for a group without members, and waits for those of one that has some.
func (env *Env) commitSkip(ctx context.Context, o *operating, key projection.WatermarkKey, to, committed int64) (string, error) {
	said := ""
	if committed < to {
		err := kafkaio.CommitForGroup(ctx, app.KafkaClient(o.cfg.Kafka), key.Group, key.TopicPartition, to, o.logger)
		switch {
		case err == nil:
			said = fmt.Sprintf("offset %d, for a group without members", to)
		case !errors.Is(err, kafkaio.ErrGroupActive):
			return "", err
		default:
			at, err := env.awaitCommit(ctx, o, key, to)
			if err != nil {
				return "", err
			}
			said = fmt.Sprintf("offset %d, by a running member", at)
		}
	} else {
		said = fmt.Sprintf("offset %d, as before", committed)
	}
	return said, o.store.ForgetSkip(ctx, key)
}

func (env *Env) awaitCommit(ctx context.Context, o *operating, key projection.WatermarkKey, to int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		p, err := env.position(ctx, o, key.Partition)
		if err == nil && p.Committed >= to {
			return p.Committed, nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.Join(fmt.Errorf("no member committed it within %s", followTimeout), err)
		case <-ticker.C:
		}
	}
}
