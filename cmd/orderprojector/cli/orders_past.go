package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// past is an order with what it was after each version.
type past struct {
	pgstore.Order
	moments []projection.Moment
}

// withPast reads the ledger of an order and, by their coordinates, its records.
func (env *Env) withPast(cmd *cobra.Command, orderID string, use func(*past) error) error {
	return env.withReading(cmd, func(ctx context.Context, r *reading) error {
		history, err := r.reader.History(ctx, orderID)
		if errors.Is(err, pgstore.ErrNotFound) {
			return orderNotFound(orderID)
		}
		if err != nil {
			return err
		}
		ranges, err := r.log.Ranges(ctx, history.Order.KafkaTopic)
		if err != nil {
			return err
		}
		if len(ranges) == 0 {
			return fmt.Errorf("topic %s has no partitions", history.Order.KafkaTopic)
		}
		moments, err := projection.Past(ctx, ranges[0].TopicPartition, history.Ledger, history.Decisions, r.records, projection.EventDecoder{})
		if err != nil {
			return err
		}
		return use(&past{history.Order, moments})
	})
}

func newOrdersAsOfCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "as-of ORDER_ID (--at TIME | --version N)",
		Short: "Print an order as it was at a time or after a version",
		Long: `Print an order as it was, from its ledger and the records that the ledger names.

A time is one of the events' own: the order had the versions that, one after another, occurred at or before it.
Where the topic no longer has a record, the state is still known, from the ledger; the
amounts are not, and that is said.`,
		Example: `  orderprojector orders as-of o-1001 --version 2
  orderprojector orders as-of o-1001 --at 2026-01-01T10:00:02Z`,
		Args: cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase)
	out := addOutputFlag(cmd)
	flags := cmd.Flags()
	var at string
	var version int64
	flags.StringVar(&at, "at", "", "time, as RFC 3339 with zone")
	flags.Int64Var(&version, "version", 0, "version")
	cmd.MarkFlagsMutuallyExclusive("at", "version")
	cmd.MarkFlagsOneRequired("at", "version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var when time.Time
		if flags.Changed("at") {
			var err error
			if when, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return usageError("--at %q is not a time like 2026-01-01T10:00:00Z", at)
			}
		} else if version < 1 {
			return usageError("--version must be at least 1")
		}
		return env.withPast(cmd, args[0], func(p *past) error {
			n := version
			if !when.IsZero() {
				if n = int64(projection.MomentAt(p.moments, when)); n == 0 {
					return notFoundError("order %q had no event at or before %s: its first occurred at %s", p.OrderID, at, timeCell(p.CreatedAt))
				}
			}
			if n > int64(len(p.moments)) {
				return notFoundError("order %q is at version %d, it has no version %d", p.OrderID, p.Version, n)
			}
			view := p.asOf(n)
			return out.print(env.Stdout, view, func(t *tableWriter) { asOfTable(t, view) })
		})
	}
	return cmd
}

// pastRecord names a record that is gone.
type pastRecord struct {
	Version   int64 `json:"version"`
	Partition int32 `json:"kafka_partition"`
	Offset    int64 `json:"kafka_offset"`
}

// amounts are an order's money; absent while it is not known.
type amounts struct {
	TotalMinor    int64  `json:"total_minor"`
	Total         string `json:"total"`
	PaidMinor     int64  `json:"paid_minor"`
	Paid          string `json:"paid"`
	RefundedMinor int64  `json:"refunded_minor"`
	Refunded      string `json:"refunded"`
}

// asOfView is an order as it was.
type asOfView struct {
	OrderID    string       `json:"order_id"`
	CustomerID string       `json:"customer_id"`
	State      string       `json:"state"`
	Version    int64        `json:"version"`
	Current    int64        `json:"current_version"`
	Currency   string       `json:"currency"`
	Amounts    *amounts     `json:"amounts"`
	UpdatedAt  *time.Time   `json:"updated_at"` // the version's event's time
	EventID    string       `json:"last_event_id"`
	Type       string       `json:"type"`
	Gone       []pastRecord `json:"records_gone"`
}

func (p *past) asOf(version int64) asOfView {
	m := &p.moments[version-1]
	v := asOfView{
		OrderID: p.OrderID, CustomerID: p.CustomerID, State: string(m.Order.State), Version: version, Current: p.Version,
		Currency: p.Currency, Type: m.Entry.Type, Gone: []pastRecord{},
	}
	for _, earlier := range slices.Backward(p.moments[:version]) {
		if e := earlier.Entry; !e.Skipped() {
			v.EventID, v.UpdatedAt = e.EventID, &e.OccurredAt
			break
		}
	}
	for _, earlier := range p.moments[:version] {
		if earlier.Gone {
			v.Gone = append(v.Gone, pastRecord{earlier.Entry.Version, earlier.Entry.Partition, earlier.Entry.Offset})
		}
	}
	switch {
	case m.MoneyKnown:
		v.Amounts = amountsOf(m.Order)
	case version == p.Version: // the row has them
		v.Amounts = amountsOf(order.Order{Currency: p.Currency, TotalMinor: p.TotalMinor, PaidMinor: p.PaidMinor, RefundedMinor: p.RefundedMinor})
	}
	return v
}

func amountsOf(o order.Order) *amounts {
	text := func(minor int64) string { return order.Money{Minor: minor, Currency: o.Currency}.Amount() }
	return &amounts{o.TotalMinor, text(o.TotalMinor), o.PaidMinor, text(o.PaidMinor), o.RefundedMinor, text(o.RefundedMinor)}
}

func asOfTable(t *tableWriter, v asOfView) {
	t.field("order", v.OrderID)
	t.field("customer", v.CustomerID)
	t.field("state", v.State)
	t.field("version", fmt.Sprintf("%d of %d", v.Version, v.Current))
	if v.Amounts != nil {
		t.field("total", moneyCell(v.Amounts.Total, v.Currency, v.Amounts.TotalMinor))
		t.field("paid", moneyCell(v.Amounts.Paid, v.Currency, v.Amounts.PaidMinor))
		t.field("refunded", moneyCell(v.Amounts.Refunded, v.Currency, v.Amounts.RefundedMinor))
	} else {
		t.field("amounts", "not known: records that they follow from are no longer in the topic")
	}
	t.field("updated at", timeCell(v.UpdatedAt))
	t.field("last event", textCell(v.EventID))
	t.field("type", v.Type)
	for _, g := range v.Gone {
		t.field("gone", fmt.Sprintf("the record of version %d, partition %d offset %d", g.Version, g.Partition, g.Offset))
	}
}

func newOrdersDiffCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff ORDER_ID --from-version A --to-version B",
		Short: "Print what changed in an order between two versions, and by which events",
		Long: `Print the columns that differ between two versions of an order and the events between
them. Version 0 is the order before its first event.`,
		Example: "  orderprojector orders diff o-1001 --from-version 1 --to-version 3",
		Args:    cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase)
	out := addOutputFlag(cmd)
	flags := cmd.Flags()
	var from, to int64
	flags.Int64Var(&from, "from-version", 0, "version to begin with; 0 is before the first event")
	flags.Int64Var(&to, "to-version", 0, "version to end with (default the current one)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if from < 0 || flags.Changed("to-version") && to <= from {
			return usageError("--from-version must not be negative, and --to-version must be higher")
		}
		return env.withPast(cmd, args[0], func(p *past) error {
			if !flags.Changed("to-version") {
				to = p.Version
			}
			if max(from, to) > int64(len(p.moments)) || from >= to {
				return notFoundError("order %q is at version %d: there is nothing between versions %d and %d", p.OrderID, p.Version, from, to)
			}
			view := p.diff(from, to)
			return out.print(env.Stdout, view, func(t *tableWriter) { diffTable(t, view) })
		})
	}
	return cmd
}

// change is a column that differs; an empty side is not known, or not there yet.
type change struct {
	Column string `json:"column"`
	From   string `json:"from"`
	To     string `json:"to"`
}

// diffEvent is an event between two versions.
type diffEvent struct {
	Version    int64           `json:"version"`
	Type       string          `json:"type"`
	EventID    string          `json:"event_id,omitempty"`
	OccurredAt *time.Time      `json:"occurred_at"`
	State      string          `json:"state"`
	Data       json.RawMessage `json:"data,omitempty"`
	Gone       bool            `json:"record_gone,omitempty"`
}

type diffView struct {
	OrderID string      `json:"order_id"`
	From    int64       `json:"from_version"`
	To      int64       `json:"to_version"`
	Changes []change    `json:"changes"`
	Events  []diffEvent `json:"events"`
}

func (p *past) diff(from, to int64) diffView {
	v := diffView{OrderID: p.OrderID, From: from, To: to, Changes: []change{}}
	before, after := map[string]string{}, p.columns(to)
	if from > 0 {
		before = p.columns(from)
	}
	for _, column := range []string{"customer_id", "state", "total", "paid", "refunded", "updated_at", "last_event_id"} {
		if before[column] != after[column] {
			v.Changes = append(v.Changes, change{column, before[column], after[column]})
		}
	}
	for _, m := range p.moments[from:to] {
		e := diffEvent{Version: m.Entry.Version, Type: m.Entry.Type, EventID: m.Entry.EventID, State: string(m.Entry.State), Data: m.Data, Gone: m.Gone}
		if at := m.Entry.OccurredAt; !m.Entry.Skipped() {
			e.OccurredAt = &at
		}
		v.Events = append(v.Events, e)
	}
	return v
}

func (p *past) columns(version int64) map[string]string {
	v := p.asOf(version)
	columns := map[string]string{"customer_id": v.CustomerID, "state": v.State, "updated_at": timeCell(v.UpdatedAt), "last_event_id": v.EventID}
	for name, text := range map[string]func(*amounts) string{
		"total":    func(a *amounts) string { return a.Total },
		"paid":     func(a *amounts) string { return a.Paid },
		"refunded": func(a *amounts) string { return a.Refunded },
	} {
		columns[name] = "not known"
		if v.Amounts != nil {
			columns[name] = text(v.Amounts) + " " + v.Currency
		}
	}
	return columns
}

func diffTable(t *tableWriter, v diffView) {
	t.row(fmt.Sprintf("order %s: version %d to %d", v.OrderID, v.From, v.To))
	t.flush()
	t.row("COLUMN", "FROM", "TO")
	for _, c := range v.Changes {
		t.row(c.Column, textCell(c.From), textCell(c.To))
	}
	t.section("EVENTS")
	t.row("VERSION", "TYPE", "EVENT", "OCCURRED", "STATE", "DATA")
	for _, e := range v.Events {
		data := string(e.Data)
		if e.Gone {
			data = "the record is no longer in the topic"
		}
		t.row(strconv.FormatInt(e.Version, 10), e.Type, textCell(e.EventID), timeCell(e.OccurredAt), e.State, textCell(data))
	}
}
