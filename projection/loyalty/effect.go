package loyalty

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orderprojector/orderprojector/domain/loyalty"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// Name names the consumer in the relation consumed_events.
const Name = "loyalty"

// Effect keeps points. It is safe for concurrent use.
type Effect struct{}

var _ effects.Effect[Tx] = Effect{}

// Name implements effects.Effect.
func (Effect) Name() string { return Name }

// Policy implements effects.Effect: points that are missing are added by a replay, once.
func (Effect) Policy() effects.Policy { return effects.Once }

// Wants implements effects.Effect. OrderCreated tells who the customer is.
func (Effect) Wants(t order.Type) bool {
	return t == order.TypeCreated || t == order.TypePaid || t == order.TypeRefunded
}

// Apply implements effects.Effect. An event that contradicts the ledger is a conflict; one whose amount cannot be
// counted exactly is invalid.
func (Effect) Apply(ctx context.Context, tx Tx, events []*effects.Event) ([]effects.Verdict, error) {
	var orders, sources []string
	for _, e := range events {
		orders = append(orders, e.OrderID)
		if m, _, moves := movement(e.Event); moves {
			sources = append(sources, m.Source())
		}
	}
	accounts, err := tx.LockAccounts(ctx, distinct(orders))
	if err != nil {
		return nil, fmt.Errorf("locking points accounts: %w", err)
	}
	known := map[string]Entry{}
	if len(sources) > 0 {
		if known, err = tx.Entries(ctx, distinct(sources)); err != nil {
			return nil, fmt.Errorf("reading the points ledger: %w", err)
		}
	}
	b := &booking{accounts: accounts, known: known}
	verdicts := make([]effects.Verdict, len(events))
	for i, e := range events {
		verdicts[i] = b.book(e)
	}
	return verdicts, b.write(ctx, tx)
}

// movement is the payment or refund that an event tells of, and the customer that it names.
func movement(e order.Event) (m loyalty.Movement, customer string, moves bool) {
	switch e := e.(type) {
	case order.Paid:
		return loyalty.Movement{Kind: loyalty.Payment, ID: e.PaymentID, Amount: e.Amount}, e.CustomerID, true
	case order.Refunded:
		return loyalty.Movement{Kind: loyalty.Refund, ID: e.RefundID, Amount: e.Amount}, e.CustomerID, true
	}
	return m, "", false
}

// booking is one batch on its way into the ledger.
type booking struct {
	accounts map[string]*Account
	known    map[string]Entry // by source
	added    []Entry
}

func (b *booking) book(e *effects.Event) effects.Verdict {
	account := b.accounts[e.OrderID]
	if created, ok := e.Event.(order.Created); ok {
		// The first one counts. Who publishes another is found by the projection.
		if account.Customers.Ordered == "" {
			account.Customers.Ordered = created.CustomerID
			account.changed = true
		}
		return effects.Verdict{Outcome: projection.Applied}
	}
	m, customer, _ := movement(e.Event)
	if entry, ok := b.known[m.Source()]; ok {
		if entry.same(e.OrderID, m) {
			return effects.Verdict{Outcome: projection.Duplicate}
		}
		return effects.Verdict{Outcome: projection.Conflict, Detail: fmt.Sprintf(
			"%s %.60q is %s of order %.60q in the ledger (event %.60q), and here %s of order %.60q",
			m.Kind, m.ID, entry.Amount, entry.OrderID, entry.EventID, m.Amount, e.OrderID)}
	}
	delta, err := account.Record(m)
	if err != nil {
		var amount *loyalty.AmountError
		if errors.As(err, &amount) {
			return effects.Verdict{Outcome: projection.Invalid, Detail: "points cannot be counted: " + err.Error()}
		}
		return effects.Verdict{Err: err}
	}
	before := account.Customers
	account.Customers.Note(m, customer)
	account.changed = account.changed || account.Customers != before
	entry := Entry{
		Movement: m, OrderID: e.OrderID, Delta: delta, EventID: e.EventID, OccurredAt: e.OccurredAt,
		TopicPartition: e.Record.TopicPartition, Offset: e.Record.Offset,
	}
	b.known[m.Source()] = entry
	b.added = append(b.added, entry)
	return effects.Verdict{Outcome: projection.Applied}
}

// write writes accounts before entries, both in key order, as every transaction does.
func (b *booking) write(ctx context.Context, tx Tx) error {
	var changed []*Account
	for _, id := range distinct(keys(b.accounts)) {
		if a := b.accounts[id]; a.changed {
			changed = append(changed, a)
		}
	}
	if len(changed) > 0 {
		if err := tx.SaveAccounts(ctx, changed); err != nil {
			return fmt.Errorf("writing points accounts: %w", err)
		}
	}
	if len(b.added) == 0 {
		return nil
	}
	for i := range b.added {
		b.added[i].CustomerID = b.accounts[b.added[i].OrderID].Customers.Owner()
	}
	added, err := tx.AddEntries(ctx, b.added)
	if err != nil {
		return fmt.Errorf("writing the points ledger: %w", err)
	}
	if added != len(b.added) {
		return effects.LostRace("writing the points ledger")
	}
	return nil
}

func keys[V any](m map[string]V) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	return all
}

// distinct sorts, so that every transaction locks in the same order.
func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
