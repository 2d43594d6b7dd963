package cli

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
)

// generateView is what was published.
type generateView struct {
	Topic      string           `json:"topic"`
	Partitions int              `json:"partitions"`
	Seed       uint64           `json:"seed"`
	Orders     int              `json:"orders"`
	Records    int64            `json:"records"`
	Bytes      int64            `json:"bytes"`
	Seconds    float64          `json:"seconds"`
	Faults     map[string]int64 `json:"records_by_fault"`
}

func newGenerateCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate --topic TOPIC",
		Short: "Publish synthetic order traffic, with or without faults",
		Long: `Publish the life cycles of many interleaved orders to a topic: clean, or with
faults at the rates that are given, as probabilities per event. The same seed and rates make
the same records. The topic has to hold generated records alone: one with records of
somebody else is refused, and none is created without --create-topic.`,
		Example: `  orderprojector generate --topic orders.test --create-topic --orders 100000 --faults
  orderprojector generate --topic orders.test --orders 1000 --rate 50 --duplicates 0.1 --poison 0.01`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionKafka)
	out := addOutputFlag(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	target := publish.Config{Partitions: 4}
	traffic := generate.Config{Orders: 10_000, Long: 1000, Amendments: 100}
	var rate float64
	var faults bool
	flags.StringVar(&target.Topic, "topic", "", "topic to publish to (required)")
	flags.BoolVar(&target.Create, "create-topic", false, "create the topic if it does not exist")
	flags.Int32Var(&target.Partitions, "partitions", target.Partitions, "number of partitions of a topic that is created")
	flags.IntVar(&traffic.Orders, "orders", traffic.Orders, "number of orders")
	flags.Uint64Var(&traffic.Seed, "seed", 0, "seed of the traffic (default a random one)")
	flags.Float64Var(&rate, "rate", 0, "records per second (default as fast as possible)")
	flags.IntVar(&traffic.InFlight, "in-flight", 500, "orders that are interleaved")
	flags.IntVar(&traffic.Long, "long", traffic.Long, "every how many orders one is long (0: none)")
	flags.IntVar(&traffic.Amendments, "amendments", traffic.Amendments, "amendments of a long order")
	flags.BoolVar(&faults, "faults", false, "a mix of every fault; single rates override it")
	rates := addRateFlags(cmd)
	if err := cmd.MarkFlagRequired("topic"); err != nil {
		panic(err) // the flag is added above
	}

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd, config.SectionKafka)
		if err != nil {
			return err
		}
		if !flags.Changed("seed") {
			traffic.Seed = rand.Uint64N(1 << 32) // short enough to be typed again
		}
		if faults {
			traffic.Rates = generate.Faulty()
		}
		rates.override(cmd, &traffic.Rates)
		stream, err := generate.New(traffic)
		if err != nil {
			return &Error{Code: ExitUsage, Err: err}
		}
		if rate < 0 || target.Partitions < 1 {
			return usageError("--rate must not be negative, and --partitions must be positive")
		}
		target.Client, target.Logger = app.KafkaClient(cfg.Kafka), env.logger(cfg.Log)
		publisher, err := publish.Open(cmd.Context(), target)
		if err != nil {
			return err
		}
		defer publisher.Close()

		line := progress.New(env.Stderr, isTerminal(env.Stderr))
		summary, err := publisher.Run(cmd.Context(), stream, rate, func(s publish.Summary) {
			if line.Due() {
				line.Update(fmt.Sprintf("%d of %d orders, %d records, %.0f records/s",
					s.Orders, traffic.Orders, s.Records, float64(s.Records)/max(s.Elapsed.Seconds(), 1e-9)))
			}
		})
		line.Clear()
		if err != nil {
			return fmt.Errorf("after %d records: %w", summary.Records, err)
		}
		view := generateView{
			Topic: target.Topic, Partitions: publisher.Partitions(), Seed: traffic.Seed, Orders: summary.Orders,
			Records: summary.Records, Bytes: summary.Bytes, Seconds: summary.Elapsed.Seconds(), Faults: map[string]int64{},
		}
		for fault, n := range summary.Faults {
			view.Faults[fault.String()] = n
		}
		return out.print(env.Stdout, view, func(t *tableWriter) { generateTable(t, view) })
	}
	return cmd
}

func generateTable(t *tableWriter, view generateView) {
	t.field("topic", fmt.Sprintf("%s, %d partitions", view.Topic, view.Partitions))
	t.field("seed", strconv.FormatUint(view.Seed, 10))
	t.field("orders", strconv.Itoa(view.Orders))
	t.field("records", strconv.FormatInt(view.Records, 10))
	t.field("bytes", strconv.FormatInt(view.Bytes, 10))
	t.field("time", fmt.Sprintf("%.2f s, %.0f records/s", view.Seconds, float64(view.Records)/max(view.Seconds, 1e-9)))
	t.section("RECORDS BY FAULT")
	for _, fault := range generate.Faults() {
		if n := view.Faults[fault.String()]; n > 0 {
			t.field(fault.String(), strconv.FormatInt(n, 10))
		}
	}
}

// rateFlags are the rates of faults; a flag that is given overrides the mix.
type rateFlags struct {
	flags []rateFlag
	given generate.Rates
}

type rateFlag struct {
	name, usage string
	rate        func(*generate.Rates) *float64
}

func addRateFlags(cmd *cobra.Command) *rateFlags {
	r := &rateFlags{flags: []rateFlag{
		{"duplicates", "the same bytes again, soon", func(r *generate.Rates) *float64 { return &r.Duplicate }},
		{"reencoded", "the same event again, written differently", func(r *generate.Rates) *float64 { return &r.Reencoded }},
		{"late-repeats", "the same bytes again, much later", func(r *generate.Rates) *float64 { return &r.LateRepeat }},
		{"disorder", "an event after later ones of its order", func(r *generate.Rates) *float64 { return &r.Disorder }},
		{"conflicts", "what contradicts an event of the order", func(r *generate.Rates) *float64 { return &r.Conflict }},
		{"poison", "what no decoder should accept", func(r *generate.Rates) *float64 { return &r.Poison }},
		{"illegal", "a good envelope that the order's state refuses", func(r *generate.Rates) *float64 { return &r.Illegal }},
		{"unsupported", "an unknown type or a higher schema version", func(r *generate.Rates) *float64 { return &r.Unsupported }},
		{"gaps", "a version that never comes, or very late", func(r *generate.Rates) *float64 { return &r.Gap }},
		{"tombstones", "a null value", func(r *generate.Rates) *float64 { return &r.Tombstone }},
		{"null-keys", "an event with a null key", func(r *generate.Rates) *float64 { return &r.NullKey }},
		{"huge-versions", "an event of version 2^53+1", func(r *generate.Rates) *float64 { return &r.HugeVersion }},
		{"cloudevents", "a CloudEvent, in binary or structured mode (no fault)", func(r *generate.Rates) *float64 { return &r.CloudEvents }},
		{"order-lines", "OrderCreated.v2, with the order's lines (no fault)", func(r *generate.Rates) *float64 { return &r.Lines }},
	}}
	for _, f := range r.flags {
		cmd.Flags().Float64Var(f.rate(&r.given), f.name, 0, "rate of: "+f.usage)
	}
	return r
}

func (r *rateFlags) override(cmd *cobra.Command, rates *generate.Rates) {
	for _, f := range r.flags {
		if cmd.Flags().Changed(f.name) {
			*f.rate(rates) = *f.rate(&r.given)
		}
	}
}
