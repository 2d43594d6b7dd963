package notifications

import (
	"context"
	"fmt"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// Name names the consumer in the relation consumed_events.
const Name = "notifications"

// Effect writes notifications. It is safe for concurrent use.
type Effect struct {
	// Written is told the event IDs of notifications that were written, of events that nobody can have dealt with before.
	Written func(eventIDs []string)
}

var (
	_ effects.Effect[Tx]     = Effect{}
	_ effects.Suppressor[Tx] = Effect{}
	_ effects.Observer       = Effect{}
)

// Name implements effects.Effect.
func (Effect) Name() string { return Name }

// Policy implements effects.Effect: a replay tells nobody of what happened long ago.
func (Effect) Policy() effects.Policy { return effects.Suppress }

// Wants implements effects.Effect.
func (Effect) Wants(t order.Type) bool { return t == order.TypePaid }

// Apply implements effects.Effect. A notification of an event that was dealt with before, by a database that has lost that, may have
// been sent.
func (Effect) Apply(ctx context.Context, tx Tx, events []*effects.Event) ([]effects.Verdict, error) {
	return write(ctx, tx, events, func(e *effects.Event) notification.State {
		if e.Repeated {
			return notification.Unknown
		}
		return notification.Pending
	})
}

// Suppress implements effects.Suppressor.
func (Effect) Suppress(ctx context.Context, tx Tx, events []*effects.Event) ([]effects.Verdict, error) {
	return write(ctx, tx, events, func(*effects.Event) notification.State { return notification.Suppressed })
}

func write(ctx context.Context, tx Tx, events []*effects.Event, state func(*effects.Event) notification.State) ([]effects.Verdict, error) {
	all := make([]Notification, 0, len(events))
	for _, e := range events {
		paid, ok := e.Event.(order.Paid)
		if !ok {
			return nil, fmt.Errorf("an event of type %T is none that is told of", e.Event)
		}
		m, err := messageOf(e, paid)
		if err != nil {
			return nil, err
		}
		all = append(all, Notification{
			Message: m, EventID: e.EventID, OrderID: e.OrderID, State: state(e), TopicPartition: e.Record.TopicPartition, Offset: e.Record.Offset,
		})
	}
	added, err := tx.AddNotifications(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("writing notifications: %w", err)
	}
	isNew := make(map[string]bool, len(added))
	for _, id := range added {
		isNew[id] = true
	}
	verdicts := make([]effects.Verdict, len(events))
	for i, e := range events {
		verdicts[i].Outcome = projection.Duplicate // the notification is there, whoever has removed what was noted of the event
		if isNew[e.EventID] {
			verdicts[i].Outcome = projection.Applied
		}
	}
	return verdicts, nil
}

// Committed implements effects.Observer.
func (f Effect) Committed(events []*effects.Event) {
	if f.Written == nil {
		return
	}
	var ids []string
	for _, e := range events {
		if e.New && !e.Repeated {
			ids = append(ids, e.EventID)
		}
	}
	f.Written(ids)
}
