//go:build unix

package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// consumedOracle decides, by the rules alone, which events a consumer deals with: once per event ID. What
// an event means beyond that is for take to say.
type consumedOracle struct {
	wants    []order.Type
	take     func(env *projection.Envelope) (outcome projection.Outcome)
	consumed map[string]*projection.Envelope
	counts   map[string]int64
	letters  map[string]string // reason by partition/offset
}

func (o *consumedOracle) fold(records []projection.Record) {
	o.consumed, o.counts, o.letters = map[string]*projection.Envelope{}, map[string]int64{}, map[string]string{}
	for i := range records {
		r := &records[i]
		outcome := o.decide(r)
		o.counts[outcome.String()]++
		if outcome.DeadLetters() {
			o.letters[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = outcome.String()
		}
	}
}

func (o *consumedOracle) decide(r *projection.Record) projection.Outcome {
	if r.Value == nil {
		return projection.Ignored
	}
	env, err := projection.EventDecoder{}.Decode(r)
	if err != nil {
		return projection.Invalid
	}
	name, _ := projection.SplitType(env.Type)
	switch {
	case !slices.Contains(o.wants, name):
		return projection.Ignored
	case env.Event == nil:
		return projection.Unsupported
	}
	if before := o.consumed[env.EventID]; before != nil {
		if projection.SameEvent(before, &env) {
			return projection.Duplicate
		}
		return projection.Conflict
	}
	outcome := o.take(&env)
	if !outcome.DeadLetters() {
		o.consumed[env.EventID] = &env
	}
	return outcome
}

// judge compares what is noted of events, letters and counts with the oracle.
func (s *consumerStage) judgeConsumed(o *consumedOracle) {
	s.t.Helper()
	got := map[string]string{}
	rows, err := s.pool.Query(s.t.Context(), `SELECT event_id, order_id FROM consumed_events WHERE consumer = $1`, s.consumer)
	must(s.t, err)
	var id, orderID string
	_, err = pgx.ForEachRow(rows, []any{&id, &orderID}, func() error { got[id] = orderID; return nil })
	must(s.t, err)
	want := map[string]string{}
	for id, env := range o.consumed {
		want[id] = env.OrderID
	}
	s.differ("consumed events", want, got)

	letters := map[string]string{}
	var at, reason string
	rows, err = s.pool.Query(s.t.Context(), `SELECT kafka_partition || '/' || kafka_offset, reason FROM dead_letters WHERE consumer_group = $1`, s.group)
	must(s.t, err)
	_, err = pgx.ForEachRow(rows, []any{&at, &reason}, func() error { letters[at] = reason; return nil })
	must(s.t, err)
	s.differ("dead letters", o.letters, letters)

	counts := map[string]int64{}
	for outcome, n := range s.counts() {
		if n > 0 {
			counts[projection.Outcome(outcome).String()] = n
		}
	}
	maps.DeleteFunc(o.counts, func(_ string, n int64) bool { return n == 0 })
	s.differ("counts", o.counts, counts)
}

func (s *stage) differ(what string, want, got any) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		lines := strings.Split(diff, "\n")
		s.t.Errorf("%s (-want +got):\n%s", what, strings.Join(lines[:min(len(lines), 40)], "\n"))
	}
}

// ledgerEntry is a payment or refund as it should be in the ledger.
type ledgerEntry struct {
	Order, Customer, Currency string
	Minor                     int64
}

// judgePoints compares the ledger with an independent fold of the topic, entry by entry and order by order.
func (s *consumerStage) judgePoints() {
	s.t.Helper()
	entries := map[string]ledgerEntry{}
	named := map[string]map[string]string{} // by order: source or "created" to customer
	oracle := &consumedOracle{wants: []order.Type{order.TypeCreated, order.TypePaid, order.TypeRefunded}}
	oracle.take = func(env *projection.Envelope) projection.Outcome {
		if named[env.OrderID] == nil {
			named[env.OrderID] = map[string]string{}
		}
		var source, customer string
		var amount order.Money
		switch e := env.Event.(type) {
		case order.Created:
			if named[env.OrderID]["created"] == "" {
				named[env.OrderID]["created"] = e.CustomerID
			}
			return projection.Applied
		case order.Paid:
			source, customer, amount = "payment:"+e.PaymentID, e.CustomerID, e.Amount
		case order.Refunded:
			source, customer, amount = "refund:"+e.RefundID, e.CustomerID, e.Amount
		}
		entry := ledgerEntry{Order: env.OrderID, Currency: amount.Currency, Minor: amount.Minor}
		if before, known := entries[source]; known {
			if before == entry {
				return projection.Duplicate
			}
			return projection.Conflict
		}
		entries[source] = entry
		if customer != "" {
			named[env.OrderID][source] = customer
		}
		return projection.Applied
	}
	oracle.fold(s.read())

	points := map[string]int64{}
	sums := map[[2]string]int64{}
	for _, source := range slices.Sorted(maps.Keys(entries)) {
		e := entries[source]
		e.Customer = ownerOf(named[e.Order])
		entries[source] = e
		minor := e.Minor
		if strings.HasPrefix(source, "refund:") {
			minor = -minor
		}
		sums[[2]string{e.Order, e.Currency}] += minor
	}
	units := map[string]int64{"JPY": 1, "KWD": 1000}
	for at, minor := range sums {
		unit := units[at[1]]
		if unit == 0 {
			unit = 100
		}
		points[at[0]] += max(0, minor) / unit
	}

	rows, err := s.pool.Query(s.t.Context(), `SELECT source, order_id, coalesce(customer_id, ''), currency, amount_minor, delta FROM points_ledger`)
	must(s.t, err)
	got, gotPoints := map[string]ledgerEntry{}, map[string]int64{}
	var source string
	var e ledgerEntry
	var delta int64
	_, err = pgx.ForEachRow(rows, []any{&source, &e.Order, &e.Customer, &e.Currency, &e.Minor, &delta}, func() error {
		got[source] = e
		gotPoints[e.Order] += delta
		return nil
	})
	must(s.t, err)
	s.differ("entries", entries, got)
	s.differ("points of orders", points, gotPoints)
	s.judgeConsumed(oracle)
}

// ownerOf is whose points an order's are: who paid, by the lowest payment ID, else who ordered, else who got money back.
func ownerOf(named map[string]string) string {
	for _, prefix := range []string{"payment:", "created", "refund:"} {
		for _, source := range slices.Sorted(maps.Keys(named)) {
			if strings.HasPrefix(source, prefix) {
				return named[source]
			}
		}
	}
	return ""
}
