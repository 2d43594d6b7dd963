package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/loyalty"
	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// redriveFunc decides dead letters again.
type redriveFunc func(context.Context, projection.RedriveRequest) (projection.RedriveReport, error)

// redriver is who decides the group's letters: the projector, or the consumer whose group it is.
func (env *Env) redriver(ctx context.Context, o *operating) (redriveFunc, error) {
	consumer, err := o.store.ConsumerOf(ctx, o.group())
	if err != nil {
		return nil, err
	}
	switch consumer {
	case "":
		return o.operator.Redrive, nil
	case loyalty.Name:
		return redriveWith(o, loyalty.Effect{}, pgstore.LoyaltyStore{Store: o.store})
	case notifications.Name:
		return redriveWith(o, notifications.Effect{}, pgstore.NotificationStore{Store: o.store})
	}
	return nil, &Error{
		Code: ExitFailed, Err: fmt.Errorf("group %s is that of %s, which this program does not know", o.group(), consumer),
		Advice: "use the program that runs it",
	}
}

func redriveWith[T effects.Tx](o *operating, effect effects.Effect[T], store effects.Store[T]) (redriveFunc, error) {
	cfg := effects.Config[T]{
		Group: o.group(), Effect: effect, Store: store, Older: noKafka{}, Logger: o.logger, Hint: app.Hint,
		BatchTimeout: o.cfg.Database.StatementTimeout + time.Second,
	}
	free := func() {}
	if o.cfg.Validate(config.SectionKafka) == nil {
		records, err := kafkaio.NewRecordReader(app.KafkaClient(o.cfg.Kafka), o.logger)
		if err != nil {
			return nil, err
		}
		cfg.Older, free = records, records.Close
	}
	consumer, err := effects.New(cfg)
	if err != nil {
		free()
		return nil, err
	}
	return func(ctx context.Context, req projection.RedriveRequest) (projection.RedriveReport, error) {
		defer free()
		return consumer.Redrive(ctx, req)
	}, nil
}
