// Package shop gives commands to the example order service, as customers would: they repeat
// themselves, and ask for what cannot be.
package shop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
)

// Prefix opens the order IDs of the shop.
const Prefix = "shop-"

const workers = 4

// Shop is the order service with its customers.
type Shop struct {
	service *orders.Service

	carriedOut, repeated, refused, placed atomic.Int64
}

// Summary is what was asked for so far, and what came of it.
type Summary struct {
	Orders     int64
	CarriedOut int64 // commands, each one event
	Repeated   int64 // under the same idempotency key: nothing changed
	Refused    int64 // as illegal: nothing changed
}

// Open makes the order service's tables.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Shop, error) {
	s := &Shop{service: orders.New(pool)}
	if err := s.service.EnsureSchema(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Summary can be asked for at any time.
func (s *Shop) Summary() Summary {
	return Summary{s.placed.Load(), s.carriedOut.Load(), s.repeated.Load(), s.refused.Load()}
}

// Run places orders and sees each through its life, several at a time. It returns once all are through, or at the first error.
func (s *Shop) Run(ctx context.Context, seed uint64, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for n := next.Add(1); n <= int64(count) && ctx.Err() == nil; n = next.Add(1) {
				if err := s.live(ctx, rand.New(rand.NewPCG(seed, uint64(n))), n); err != nil {
					cancel(err)
				}
				s.placed.Add(1)
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}

var currencies = []string{"EUR", "USD", "JPY", "KWD"}

// live gives the commands of one order's life.
func (s *Shop) live(ctx context.Context, r *rand.Rand, n int64) error {
	id := fmt.Sprintf("%s%06d", Prefix, n)
	total := order.Money{Minor: 1 + r.Int64N(100_000), Currency: currencies[r.IntN(len(currencies))]}
	chance := func(percent int) bool { return r.IntN(100) < percent }

	life := []orders.Command{{Name: orders.Create, CustomerID: fmt.Sprintf("customer-%d", r.IntN(200)), Amount: &total}}
	if chance(20) {
		total = order.Money{Minor: 1 + r.Int64N(100_000), Currency: total.Currency}
		life = append(life, orders.Command{Name: orders.Amend, Amount: &total})
	}
	switch {
	case chance(10): // nobody pays
		life = append(life, orders.Command{Name: orders.Cancel})
	case chance(10): // a change of mind
		life = append(life, pay(id), orders.Command{Name: orders.Cancel}, refund(id, 1, nil))
	default:
		life = append(life, pay(id))
		if chance(50) {
			life = append(life, orders.Command{Name: orders.Pack})
		}
		life = append(life, orders.Command{Name: orders.Ship, Carrier: "carrier", Tracking: "track-" + id}, orders.Command{Name: orders.Deliver})
		if part := total.Minor / 3; chance(20) && part > 0 { // a third back, then perhaps the rest
			life = append(life, refund(id, 1, &order.Money{Minor: part, Currency: total.Currency}))
			if chance(50) {
				life = append(life, orders.Command{Name: orders.Return}, refund(id, 2, nil))
			}
		}
	}
	for i, c := range life {
		c.OrderID, c.IdempotencyKey = id, fmt.Sprintf("%s/%d", id, i)
		if err := s.give(ctx, c, chance(10), chance(5)); err != nil {
			return fmt.Errorf("%s %s: %w", c.Name, id, err)
		}
	}
	return nil
}

func pay(id string) orders.Command {
	return orders.Command{Name: orders.Pay, PaymentID: "payment-" + id}
}

func refund(id string, n int, amount *order.Money) orders.Command {
	return orders.Command{Name: orders.Refund, RefundID: fmt.Sprintf("refund-%s-%d", id, n), Amount: amount}
}

// give gives one command, perhaps twice, and perhaps one behind it that cannot be: nothing can be created a second time.
func (s *Shop) give(ctx context.Context, c orders.Command, again, impossible bool) error {
	result, err := s.service.Do(ctx, c)
	if err != nil {
		return err
	}
	s.carriedOut.Add(1)
	if again {
		repeated, err := s.service.Do(ctx, c)
		switch {
		case err != nil:
			return fmt.Errorf("repeated: %w", err)
		case !repeated.Repeated || repeated.EventID != result.EventID || repeated.Version != result.Version:
			return fmt.Errorf("repeated under the same idempotency key, it made %+v of the order, and %+v at first", repeated, result)
		}
		s.repeated.Add(1)
	}
	if impossible {
		_, err := s.service.Do(ctx, orders.Command{
			Name: orders.Create, OrderID: c.OrderID, CustomerID: "somebody else", Amount: &order.Money{Minor: 1, Currency: "EUR"},
		})
		if illegal := (*orders.IllegalError)(nil); !errors.As(err, &illegal) {
			return fmt.Errorf("a second creation was not refused as illegal: %w", err)
		}
		s.refused.Add(1)
	}
	return nil
}
