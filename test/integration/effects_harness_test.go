//go:build unix

package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// consumerStage is a stage on which a consumer beside the projector plays: the stage's group is that consumer's.
type consumerStage struct {
	*stage
	consumer string // loyalty or notifications
	build    func(context.Context, config.Config, *slog.Logger) (*app.App, error)
	settings []func(*config.Config)
	args     []string
	extraEnv []string
}

func newLoyaltyStage(t testing.TB, config stageConfig) *consumerStage {
	t.Helper()
	return &consumerStage{stage: newStage(t, config), consumer: "loyalty", build: app.NewLoyalty}
}

// start runs the consumer in this process until the end of the test.
func (s *consumerStage) start(changes ...func(*config.Config)) *program {
	s.t.Helper()
	cfg := s.config()
	cfg.Kafka.Group = s.group + "-projector"
	cfg.Kafka.DeadLetterTopic = "none"
	cfg.Loyalty.Group, cfg.Notifications.Group = s.group+"-loyalty", s.group+"-notifications"
	if s.consumer == "loyalty" {
		cfg.Loyalty.Group = s.group
	} else {
		cfg.Notifications.Group = s.group
	}
	for _, change := range append(s.settings, changes...) {
		change(&cfg)
	}
	a, err := s.build(s.t.Context(), cfg, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
	must(s.t, err)
	return s.run(a)
}

// env configures a process of the program for this stage.
func (s *consumerStage) env() []string {
	env := []string{"ORDERPROJECTOR_GROUP=" + s.group + "-projector", "ORDERPROJECTOR_DEAD_LETTER_TOPIC=none"}
	for _, v := range s.stage.env() {
		if !strings.HasPrefix(v, "ORDERPROJECTOR_GROUP=") {
			env = append(env, v)
		}
	}
	return append(append(env, s.extraEnv...), "ORDERPROJECTOR_"+strings.ToUpper(s.consumer)+"_GROUP="+s.group)
}

// spawn runs the consumer as a process of its own.
func (s *consumerStage) spawn(args ...string) *process {
	s.t.Helper()
	args = append(append([]string{"run", s.consumer}, s.args...), args...)
	return &process{Process: testenv.StartProcess(s.t, testenv.ProcessConfig{Args: args, Env: s.env()}), t: s.t}
}

// command runs a command of the program to its end.
func (s *consumerStage) command(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.ProcessConfig{Args: args, Env: s.env()})
	code = p.Wait(patience)
	return code, p.Stdout(), p.Stderr()
}

// Events with payments and refunds of their own.

func createdBy(orderID, customer string) *kgo.Record {
	return record(orderID, event(orderID, 1, "OrderCreated.v1", fmt.Sprintf(`{"customer_id":%q,"total":{"amount":"19.99","currency":"EUR"}}`, customer)))
}

// paying is the data of a payment; customer "" is left out.
func paying(payment, amount, currency, customer string) string {
	return moving("payment_id", payment, amount, currency, customer)
}

func refunding(refund, amount, currency, customer string) string {
	return moving("refund_id", refund, amount, currency, customer)
}

func moving(idField, id, amount, currency, customer string) string {
	data := fmt.Sprintf(`{%q:%q,"amount":{"amount":%q,"currency":%q}`, idField, id, amount, currency)
	if customer != "" {
		data += fmt.Sprintf(`,"customer_id":%q`, customer)
	}
	return data + "}"
}

func paidWith(orderID string, version int64, payment, amount, currency, customer string) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderPaid.v1", paying(payment, amount, currency, customer)))
}

func refundedWith(orderID string, version int64, refund, amount, currency, customer string) *kgo.Record {
	return record(orderID, event(orderID, version, "OrderRefunded.v1", refunding(refund, amount, currency, customer)))
}
