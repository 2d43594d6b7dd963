package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/domain/order"
)

type transitionView struct {
	Event string `json:"event"`
	From  string `json:"from"` // empty: the order does not exist yet
	To    string `json:"to"`
	When  string `json:"when"` // condition on the amount
}

func newStatesCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "states",
		Short: "Print the order state machine",
		Args:  cobra.NoArgs,
	}
	out := addOutputFlag(cmd, "mermaid")
	cmd.RunE = func(*cobra.Command, []string) error {
		if out.format == "mermaid" {
			_, err := fmt.Fprint(env.Stdout, order.Mermaid())
			return err
		}
		transitions := []transitionView{}
		for _, t := range order.Transitions() {
			transitions = append(transitions, transitionView{string(t.Event), string(t.From), string(t.To), t.When})
		}
		return out.print(env.Stdout, transitions, func(t *tableWriter) {
			t.row("EVENT", "FROM", "TO", "WHEN")
			for _, v := range transitions {
				from := v.From
				if from == "" {
					from = "(none)"
				}
				t.row(v.Event, from, v.To, v.When)
			}
		})
	}
	return cmd
}
