//go:build unix

package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
	"github.com/orderprojector/orderprojector/outbox"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// shop is an order service on a stage, and what it was told to have done: what has to be in the topic.
type shop struct {
	*stage
	service *orders.Service

	mu   sync.Mutex
	done map[string]map[int64]string // event IDs by order and version
}

// newShop opens an order service on the stage's database, as the test itself reaches it.
func (s *stage) newShop() *shop {
	s.t.Helper()
	cfg, err := pgxpool.ParseConfig(s.dsn)
	must(s.t, err)
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(s.t.Context(), cfg)
	must(s.t, err)
	s.t.Cleanup(pool.Close)
	shop := &shop{stage: s, service: orders.New(pool), done: map[string]map[int64]string{}}
	must(s.t, shop.service.EnsureSchema(s.t.Context()))
	return shop
}

// do carries a command out and notes its event.
func (s *shop) do(ctx context.Context, c orders.Command) error {
	result, err := s.service.Do(ctx, c)
	if err != nil || result.Repeated {
		return err
	}
	s.note(result.OrderID, result.Version, result.EventID)
	return nil
}

func (s *shop) note(orderID string, version int64, eventID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done[orderID] == nil {
		s.done[orderID] = map[int64]string{}
	}
	s.done[orderID][version] = eventID
}

func (s *shop) events() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, versions := range s.done {
		n += len(versions)
	}
	return n
}

func euros(minor int64) *order.Money { return &order.Money{Minor: minor, Currency: "EUR"} }

// life is the commands of one order's life, at random.
func life(rng *rand.Rand, id string) []orders.Command {
	c := []orders.Command{{Name: orders.Create, OrderID: id, CustomerID: "c-1", Amount: euros(1999)}}
	for range rng.IntN(4) {
		c = append(c, orders.Command{Name: orders.Amend, OrderID: id, Amount: euros(rng.Int64N(5000))})
	}
	c = append(c, orders.Command{Name: orders.Pay, OrderID: id, PaymentID: "p-" + id})
	if rng.IntN(4) == 0 {
		return append(c, orders.Command{Name: orders.Cancel, OrderID: id})
	}
	c = append(c, orders.Command{Name: orders.Pack, OrderID: id}, orders.Command{Name: orders.Ship, OrderID: id, Carrier: "DHL", Tracking: "t-1"})
	return append(c, orders.Command{Name: orders.Deliver, OrderID: id})
}

// trade lets customers do business, several at a time, until stop is called.
func (s *shop) trade(seed uint64, customers int) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for customer := range customers {
		rng := rand.New(rand.NewPCG(seed, uint64(customer)))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for _, c := range life(rng, fmt.Sprintf("o-%d-%d", customer, n)) {
					if ctx.Err() != nil {
						return // between two commands: each ends
					}
					if err := s.do(context.WithoutCancel(ctx), c); err != nil {
						s.t.Errorf("%s %s: %v", c.Name, c.OrderID, err)
						return
					}
				}
			}
		})
	}
	stopped := sync.OnceFunc(func() { cancel(); wg.Wait() })
	s.t.Cleanup(stopped)
	return stopped
}

// awaitPublished waits until nothing is left in the outbox.
func (s *shop) awaitPublished() {
	s.t.Helper()
	s.awaitSQL(`SELECT NOT EXISTS (SELECT FROM outbox)`)
}

// append stores a message outside of the order service, as another service would.
func (s *shop) append(orderID string, version int64, e order.Event) {
	s.t.Helper()
	must(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error { return s.appendIn(tx, orderID, version, e) }))
}

func (s *shop) appendIn(tx pgx.Tx, orderID string, version int64, e order.Event) error {
	m, err := outbox.NewMessage(orderID, version, s.service.Now(), e)
	if err != nil {
		return err
	}
	if err := outbox.Append(s.t.Context(), tx, m); err != nil {
		return err
	}
	s.note(orderID, version, m.EventID)
	return nil
}

// judgeTopic compares the topic with what was done: everything is there, with its event ID; per order the versions come
// in their order, each the first time; repeats are the same bytes. It returns how many repeats there are.
func (s *shop) judgeTopic() (repeats int) {
	s.t.Helper()
	type place struct {
		order   string
		version int64
	}
	seen := map[place]projection.Record{}
	last := map[string]int64{}
	problems := 0
	problem := func(format string, args ...any) {
		if problems++; problems <= 20 {
			s.t.Errorf(format, args...)
		}
	}
	for _, r := range s.read() {
		e, err := projection.JSONDecoder{}.Decode(&r)
		if err != nil {
			problem("%s offset %d: %v", r.TopicPartition, r.Offset, err)
			continue
		}
		at := place{e.OrderID, e.Version}
		if first, again := seen[at]; again {
			repeats++
			if !bytes.Equal(first.Value, r.Value) || first.Partition != r.Partition {
				problem("order %s: version %d came again in other bytes or another partition", e.OrderID, e.Version)
			}
			continue
		}
		seen[at] = r
		if want := s.done[e.OrderID][e.Version]; want != e.EventID {
			problem("order %s: version %d is event %q, done was %q", e.OrderID, e.Version, e.EventID, want)
		}
		if e.Version <= last[e.OrderID] {
			problem("order %s: version %d came first after version %d", e.OrderID, e.Version, last[e.OrderID])
		}
		last[e.OrderID] = e.Version
	}
	for id, versions := range s.done {
		for version := range versions {
			if _, ok := seen[place{id, version}]; !ok {
				problem("order %s: version %d is missing in the topic", id, version)
			}
		}
	}
	return repeats
}

// spawnRelay runs a relay as a process of its own.
func (s *stage) spawnRelay(args ...string) *process {
	s.t.Helper()
	return &process{Process: s.startProcess(append([]string{"relay"}, args...)...), t: s.t}
}

// relayProgram is a relay that runs in this process.
type relayProgram struct {
	*app.Relay
	stop func() error
}

// startRelay runs a relay in this process until the end of the test.
func (s *stage) startRelay(changes ...func(*config.Config)) *relayProgram {
	s.t.Helper()
	cfg := s.config()
	for _, change := range changes {
		change(&cfg)
	}
	a, err := app.NewRelay(s.t.Context(), cfg, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	p := &relayProgram{Relay: a, stop: sync.OnceValue(func() error { cancel(); return <-ended })}
	s.t.Cleanup(func() {
		if err := p.stop(); err != nil {
			s.t.Errorf("the relay ended with: %v", err)
		}
	})
	return p
}

// awaitActive waits until one of the relays publishes, and returns which.
func awaitActive(t testing.TB, relays ...*process) (active int) {
	t.Helper()
	testenv.Await(t, patience, func() (bool, string) {
		for i, p := range relays {
			if v, _ := metricOf(p, "orderprojector_outbox_relay_active"); v == 1 {
				active = i
				return true, ""
			}
		}
		return false, "no relay is active"
	})
	return active
}

// relayPID waits for a relay to have the lock of the stage's outbox, another one than before, and returns its session.
func (s *stage) relayPID(before int32) (pid int32) {
	s.t.Helper()
	testenv.Await(s.t, patience, func() (bool, string) {
		err := s.pool.QueryRow(s.t.Context(), `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'orderprojector-relay' AND a.datname = current_database()`).Scan(&pid)
		return err == nil && pid != before, fmt.Sprintf("session %d: %v", pid, err)
	})
	return pid
}

// judgeOnce is judgeTopic where nothing has to come twice, unless broker or database failed the relay.
func (s *shop) judgeOnce(p instance) {
	s.t.Helper()
	repeats := s.judgeTopic()
	if failures, ok := metricOf(p, "orderprojector_outbox_failures_total"); repeats > 0 && (failures == 0 || !ok) {
		s.t.Errorf("%d events were published twice without need", repeats)
	}
}
