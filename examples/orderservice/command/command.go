package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
)

// spec is one command: its flags write to the command that is carried out.
type spec struct {
	name     orders.Name
	short    string
	flags    func(*pflag.FlagSet, *orders.Command)
	required []string
}

func specs() []spec {
	amount := func(name, usage string) func(*pflag.FlagSet, *orders.Command) {
		return func(f *pflag.FlagSet, c *orders.Command) { f.Var(&moneyValue{to: &c.Amount}, name, usage) }
	}
	reason := func(f *pflag.FlagSet, c *orders.Command) { f.StringVar(&c.Reason, "reason", "", "why") }
	return []spec{
		{name: orders.Create, short: "Create an order", required: []string{"customer", "total"}, flags: func(f *pflag.FlagSet, c *orders.Command) {
			f.StringVar(&c.CustomerID, "customer", "", "the customer's ID")
			amount("total", `what it costs, such as "19.99 EUR"`)(f, c)
		}},
		{name: orders.Amend, short: "Change an order's total", required: []string{"total"}, flags: amount("total", `what it costs now, such as "18.99 EUR"`)},
		{name: orders.Pay, short: "Pay an order", required: []string{"payment"}, flags: func(f *pflag.FlagSet, c *orders.Command) {
			f.StringVar(&c.PaymentID, "payment", "", "the payment's ID")
			amount("amount", "what was paid (default the total)")(f, c)
		}},
		{name: orders.Pack, short: "Pack an order"},
		{name: orders.Ship, short: "Hand an order to the carrier", flags: func(f *pflag.FlagSet, c *orders.Command) {
			f.StringVar(&c.Carrier, "carrier", "post", "who carries it")
			f.StringVar(&c.Tracking, "tracking", "none", "tracking number")
		}},
		{name: orders.Deliver, short: "Say that the customer has the goods"},
		{name: orders.Cancel, short: "Cancel an order that is not shipped", flags: reason},
		{name: orders.Return, short: "Take the goods back", flags: reason},
		{name: orders.Refund, short: "Give money back", required: []string{"refund"}, flags: func(f *pflag.FlagSet, c *orders.Command) {
			f.StringVar(&c.RefundID, "refund", "", "the refund's ID")
			amount("amount", "what is given back (default all that was paid and not refunded)")(f, c)
		}},
	}
}

func newCommand(env Env, s spec) *cobra.Command {
	c := orders.Command{Name: s.name, TraceParent: env.Getenv("TRACEPARENT"), TraceState: env.Getenv("TRACESTATE")}
	cmd := &cobra.Command{Use: string(s.name) + " ORDER", Short: s.short, Args: cobra.ExactArgs(1)}
	if s.flags != nil {
		s.flags(cmd.Flags(), &c)
	}
	cmd.Flags().StringVar(&c.IdempotencyKey, "idempotency-key", "", "a repetition of the command with the same key changes nothing")
	for _, name := range s.required {
		_ = cmd.MarkFlagRequired(name) // fails for a flag that does not exist: caught by any test
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.OrderID = args[0]
		return do(cmd.Context(), env, c)
	}
	return cmd
}

// moneyValue is a flag that takes an exact amount with its currency.
type moneyValue struct{ to **order.Money }

func (v *moneyValue) Type() string { return "money" }
func (v *moneyValue) String() string {
	if v.to == nil || *v.to == nil {
		return ""
	}
	return (*v.to).String()
}

// Set implements pflag.Value.
func (v *moneyValue) Set(text string) error {
	amount, currency, found := strings.Cut(text, " ")
	if !found {
		return errors.New(`it is not an amount and a currency, such as "19.99 EUR"`)
	}
	m, err := order.ParseMoney(amount, currency)
	if err != nil {
		return fmt.Errorf("it is not money that can be kept exactly: %w", err)
	}
	*v.to = &m
	return nil
}
