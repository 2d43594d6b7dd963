package cli

import (
	"context"
	"fmt"
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

// kafkaQuestionTimeout bounds what is asked of Kafka beside the database.
const kafkaQuestionTimeout = 10 * time.Second

func newStatusCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print how a group stands: paused or not, positions, counts, letters, held records, gaps",
		Long: `Print how a group stands: whether it is paused, by whom and why, whether its breaker is
open, which members run, what stands still and why, and what was decided per partition. No member has to
run. Where Kafka does not answer, what it would say is left out.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionDatabase)
	addSettingFlags(cmd, "group", "topic")
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd, config.SectionDatabase, config.SectionGroup)
		if err != nil {
			return err
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			status, err := reader.Status(ctx, cfg.Kafka.Group)
			if err != nil {
				return err
			}
			view := statusView{GroupStatus: status}
			positions, err := env.positions(ctx, cfg)
			if err != nil {
				view.KafkaError = err.Error()
				fmt.Fprintln(env.Stderr, "Kafka's side is left out:", err)
			}
			view.add(cfg.Kafka.Topic, positions)
			view.Standing = env.standing(ctx, reader, cfg, view)
			return out.print(env.Stdout, view, func(t *tableWriter) { statusTable(t, view) })
		})
	}
	return cmd
}

// positions asks Kafka, if it is known where that is.
func (env *Env) positions(ctx context.Context, cfg config.Config) ([]kafkaio.GroupPosition, error) {
	if err := cfg.Validate(config.SectionKafka); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaQuestionTimeout)
	defer cancel()
	return kafkaio.GroupPositions(ctx, app.KafkaClient(cfg.Kafka), cfg.Kafka.Group, cfg.Kafka.Topic, env.logger(cfg.Log))
}

// statusView is a group's status with Kafka's side of it.
type statusView struct {
	pgstore.GroupStatus
	Partitions []partitionView `json:"partitions"`
	KafkaError string          `json:"kafka_error,omitempty"`
	Standing   []standing      `json:"standing_still"`
}

// partitionView is a partition as the database and Kafka see it; what one of them
// does not know is null.
type partitionView struct {
	pgstore.PartitionState
	Watermark  *int64     `json:"watermark"`
	UpdatedAt  *time.Time `json:"updated_at"`
	LogStart   *int64     `json:"log_start"`
	LogEnd     *int64     `json:"log_end"`     // high watermark
	LastStable *int64     `json:"last_stable"` // end of what may be read: below open transactions
	Committed  *int64     `json:"committed"`
	Lag        *int64     `json:"lag"` // from the watermark to the high watermark
	// Transaction is the oldest open one, which holds back what lies behind it.
	Transaction *transactionView `json:"open_transaction,omitempty"`
}

// transactionView is an open transaction.
type transactionView struct {
	Offset  int64      `json:"kafka_offset"` // of its first record
	Offsets int64      `json:"offsets"`      // from there to the end of the log
	Since   *time.Time `json:"since"`        // timestamp of its first record
}

// viewTransaction returns nil where none is open.
func viewTransaction(p *kafkaio.GroupPosition) *transactionView {
	if p.BehindTransaction() == 0 {
		return nil
	}
	v := &transactionView{Offset: p.LogEnd, Offsets: p.BehindTransaction()}
	if !p.TransactionSince.IsZero() {
		v.Since = &p.TransactionSince
	}
	return v
}

func (v *transactionView) String() string {
	return fmt.Sprintf("%d offsets wait behind a transaction that is open since %s at offset %d", v.Offsets, timeCell(v.Since), v.Offset)
}

// add joins both sides.
func (v *statusView) add(topic string, positions []kafkaio.GroupPosition) {
	v.Partitions = []partitionView{}
	for _, p := range v.GroupStatus.Partitions {
		v.Partitions = append(v.Partitions, partitionView{PartitionState: p, Watermark: &p.Watermark, UpdatedAt: &p.UpdatedAt})
	}
	for _, p := range positions {
		view := v.partition(topic, p.Partition)
		view.LogStart, view.LogEnd, view.LastStable = &p.LogStart, &p.HighWatermark, &p.LogEnd
		view.Transaction = viewTransaction(&p)
		at := p.LogStart
		if view.Watermark != nil {
			at = *view.Watermark
		}
		lag := max(0, p.HighWatermark-at)
		view.Lag = &lag
		if p.Committed != projection.NoOffset {
			view.Committed = &p.Committed
		}
	}
}

func (v *statusView) partition(topic string, partition int32) *partitionView {
	for i := range v.Partitions {
		if p := &v.Partitions[i]; p.KafkaTopic == topic && p.KafkaPartition == partition {
			return p
		}
	}
	v.Partitions = append(v.Partitions, partitionView{PartitionState: pgstore.PartitionState{KafkaTopic: topic, KafkaPartition: partition}})
	return &v.Partitions[len(v.Partitions)-1]
}

func statusTable(t *tableWriter, v statusView) {
	t.field("group", v.Group)
	t.field("consumption", consumptionCell(v.Consumption))
	t.field("breaker", breakerCell(v.Consumption.Breaker))
	t.field("members", membersCell(v.Members))
	t.field("parked events", countSinceCell(v.Parked.Events, v.Parked.OldestSeconds))
	t.field("gaps", fmt.Sprintf("%d orders, %d of them overdue", v.Gaps.Orders, v.Gaps.Overdue))
	t.field("blocked orders", strconv.FormatInt(v.Blocked, 10))
	t.field("held records", heldStatsCell(v.Held))
	t.field("dead letters", lettersCell(v.DeadLetters))
	t.field("copies pending", countSinceCell(v.Copies.Pending, v.Copies.OldestSeconds))
	for _, p := range v.Partitions {
		if p.Transaction != nil {
			t.field("open transaction", fmt.Sprintf("%s-%d: %s", p.KafkaTopic, p.KafkaPartition, p.Transaction))
		}
	}
	if len(v.Standing) > 0 {
		t.section("STANDING STILL")
		for _, still := range v.Standing {
			t.row(still.What)
			t.row("  " + textCell(still.Hint))
		}
	}
	t.section("PARTITIONS")
	t.row("TOPIC", "PARTITION", "LOG START", "COMMITTED", "WATERMARK", "LOG END", "LAG", "APPLIED", "DUPLICATE", "STALE", "PARKED", "HELD",
		"CONFLICT", "INVALID", "UNSUPPORTED", "ILLEGAL", "IGNORED", "LOST", "ADVANCED")
	for _, p := range v.Partitions {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		t.row(p.KafkaTopic, number(int64(p.KafkaPartition)), versionCell(p.LogStart), versionCell(p.Committed), versionCell(p.Watermark), versionCell(p.LogEnd),
			versionCell(p.Lag), number(p.Applied), number(p.Duplicate), number(p.Stale), number(p.Parked), number(p.Held),
			number(p.Conflict), number(p.Invalid), number(p.Unsupported), number(p.Illegal), number(p.Ignored), number(p.LostOffsets), timeCell(p.UpdatedAt))
	}
}

func consumptionCell(c pgstore.ConsumptionView) string {
	switch {
	case c.Pause != nil:
		return fmt.Sprintf("paused by %s since %s: %s", c.Pause.By, timeCell(&c.Pause.Since), c.Pause.Comment)
	case c.Breaker != nil:
		return "paused by the breaker"
	}
	return "not paused"
}

func breakerCell(b *pgstore.BreakerView) string {
	if b == nil {
		return "closed"
	}
	why := fmt.Sprintf("%d of the last %d events were dead letters of one reason (%s), of %d orders or more", b.Letters, b.Events, b.Reason, b.Orders)
	if b.Reason == projection.Held.String() {
		trip := projection.BreakerTrip{Reason: projection.Held, Letters: b.Letters, Orders: b.Orders, Events: b.Events}
		why = trip.String()
	}
	return fmt.Sprintf("open since %s: %s", timeCell(&b.Since), why)
}

func countSinceCell(n int64, oldestSeconds float64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, the oldest for %s", n, time.Duration(oldestSeconds*float64(time.Second)).Round(time.Second))
}

func heldStatsCell(s pgstore.HeldStats) string {
	cell := countSinceCell(s.Records, s.OldestSeconds)
	if s.Overdue > 0 {
		cell += fmt.Sprintf(", %d of them overdue", s.Overdue)
	}
	return cell
}

func lettersCell(counts []pgstore.LetterCount) string {
	if len(counts) == 0 {
		return "none"
	}
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%d %s %s", c.Letters, c.Status, c.Reason))
	}
	return strings.Join(parts, ", ")
}
