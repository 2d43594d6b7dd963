package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// pointsCheckView is what points check found. The differences are the first ones.
type pointsCheckView struct {
	pgstore.PointsCheck
	Differences []pgstore.PointsDifference `json:"differences"`
}

func newPointsCheckCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the points ledger with the orders, and list what differs",
		Long: `Compare, order by order and at one moment, the points ledger with what the projection says was paid and refunded.

The loyalty consumer trusts what the order service published. So an event that the projection refused, or waits to
apply, is a difference: the order's projection_status tells. Where the two have not read equally far, the positions are listed.

Exit code 3: something differs.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase, config.SectionLoyalty)
	addSettingFlags(cmd, "group")
	out := addOutputFlag(cmd)
	limit := cmd.Flags().Int("limit", 100, "list at most so many orders; all are counted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 {
			return usageError("--limit must be positive")
		}
		cfg, err := env.loadConfig(cmd, config.SectionDatabase, config.SectionGroup, config.SectionLoyalty)
		if err != nil {
			return err
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			view := pointsCheckView{Differences: []pgstore.PointsDifference{}}
			view.PointsCheck, err = reader.CheckPoints(ctx, cfg.Kafka.Group, cfg.Loyalty.Group, func(d pgstore.PointsDifference) error {
				if len(view.Differences) < *limit {
					view.Differences = append(view.Differences, d)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, view, func(t *tableWriter) { pointsCheckTable(t, view) }); err != nil {
				return err
			}
			if len(view.Apart) > 0 {
				fmt.Fprintln(env.Stderr, "the projector and loyalty have not read equally far: what only one of them has read differs")
			}
			if view.Differ > 0 {
				return differenceError("%d of %d orders differ", view.Differ, view.Orders)
			}
			return nil
		})
	}
	return cmd
}

func pointsCheckTable(t *tableWriter, v pointsCheckView) {
	t.field("orders", fmt.Sprintf("%d with a payment, a refund or an entry", v.Orders))
	t.field("differ", fmt.Sprint(v.Differ))
	t.field("without a customer", fmt.Sprint(v.Unowned))
	if len(v.Apart) > 0 {
		t.section("NOT READ EQUALLY FAR")
		t.row("TOPIC", "PARTITION", "PROJECTED", "LOYALTY")
		for _, p := range v.Apart {
			t.row(p.KafkaTopic, fmt.Sprint(p.KafkaPartition), fmt.Sprint(p.Projected), fmt.Sprint(p.Loyalty))
		}
	}
	if len(v.Differences) > 0 {
		t.section("DIFFERENCES")
		t.row("ORDER", "PROJECTION", "PROJECTED", "LEDGER", "WHAT DIFFERS")
		for _, d := range v.Differences {
			t.row(d.OrderID, textCell(d.Status), pointsCell(d.Projected), pointsCell(d.Ledger), strings.Join(d.Problems, "; "))
		}
	}
}

func pointsCell(p *pgstore.PointsOfOrder) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%d of %s", p.Points, textCell(p.CustomerID))
}
