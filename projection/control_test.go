package projection_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// controlled is a projector with one partition, under control, on a store in memory.
type controlled struct {
	t         *testing.T
	store     *projectiontest.Memory
	control   *projection.Control
	reg       *prometheus.Registry
	projector *projection.Projector
	handler   projection.PartitionHandler
	next      int64
}

// control starts a controlled projector; in a bubble of synctest.
func control(t *testing.T) *controlled {
	t.Helper()
	return controlWith(t, projection.BreakerPolicy{}, projection.HeldPolicy{})
}

func controlWith(t *testing.T, breaker projection.BreakerPolicy, held projection.HeldPolicy) *controlled {
	t.Helper()
	c := &controlled{t: t, store: projectiontest.NewMemory(), reg: prometheus.NewRegistry()}
	var err error
	c.control, err = projection.NewControl(projection.ControlConfig{Group: "g", Store: c.store, Registerer: c.reg, Breaker: breaker})
	if err != nil {
		t.Fatal(err)
	}
	if _, why := c.control.Closed(); why == nil {
		t.Error("the gate is open before the state is known")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.control.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	c.projector, err = projection.NewProjector(projection.ProjectorConfig{Group: "g", Store: c.store, Older: noRecords{}, Control: c.control, Held: held})
	if err != nil {
		t.Fatal(err)
	}
	c.handler, _, err = c.projector.Assign(t.Context(), projection.Assignment{
		Group: "g", TopicPartition: projection.TopicPartition{Topic: "orders"}, Committed: projection.NoOffset,
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

type noRecords struct{}

func (noRecords) ReadRecords(context.Context, projection.TopicPartition, []int64, func(projection.Record)) error {
	return nil
}

// handle applies values, each keyed by its own order.
func (c *controlled) handle(values ...string) {
	c.t.Helper()
	var records []projection.Record
	for _, v := range values {
		records = append(records, projection.Record{
			TopicPartition: projection.TopicPartition{Topic: "orders"}, Offset: c.next, Key: fmt.Append(nil, "o-", c.next), Value: []byte(v),
		})
		c.next++
	}
	if err := c.handler.Handle(c.t.Context(), records); err != nil {
		c.t.Fatal(err)
	}
}

func (c *controlled) gate(want string) {
	c.t.Helper()
	_, why := c.control.Closed()
	switch {
	case want == "" && why != nil:
		c.t.Errorf("the gate is closed: %v", why)
	case want != "" && (why == nil || !strings.Contains(why.Error(), want)):
		c.t.Errorf("the gate says %v, want %q", why, want)
	}
}

// bad and good are values of n orders each.
func bad(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = "nonsense"
	}
	return values
}

func (c *controlled) good(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf(`{"event_id":"e-%[1]d","order_id":"o-%[1]d","type":"OrderCreated.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z",`+
			`"data":{"customer_id":"c","total":{"amount":"1.00","currency":"EUR"}}}`, c.next+int64(i))
	}
	return values
}

func TestTheBreakerOpensAtOnceAndForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		changed, _ := c.control.Closed()
		c.handle(bad(99)...)
		c.gate("")
		c.handle(bad(1)...)
		c.gate("paused by the breaker")
		select {
		case <-changed:
		default:
			t.Error("the change was not signalled")
		}
		stored, _ := c.store.Consumption(t.Context(), "g")
		if b := stored.Breaker; b == nil || b.Reason != projection.Invalid || b.Letters != 100 || b.Events != 100 {
			t.Errorf("stored: %+v", stored.Breaker)
		}
		var paused *projection.PausedError
		if _, why := c.control.Closed(); !errors.As(why, &paused) || !strings.Contains(paused.Hint(), "resume") {
			t.Errorf("closed: %v", why)
		}
		c.metrics(0, 1)

		time.Sleep(time.Hour) // it does not close by itself
		c.gate("paused by the breaker")
		c.store.SetConsumption("g", projection.Consumption{})
		time.Sleep(time.Second)
		synctest.Wait()
		c.gate("")
		c.metrics(0, 0)
		c.handle(bad(99)...) // the window begins anew
		c.gate("")
	})
}

func (c *controlled) metrics(paused, open int) {
	c.t.Helper()
	err := testutil.GatherAndCompare(c.reg, strings.NewReader(fmt.Sprintf(`
		# HELP orderprojector_consumption_paused 1 while the group is paused by an operator.
		# TYPE orderprojector_consumption_paused gauge
		orderprojector_consumption_paused %d
		# HELP orderprojector_breaker_open 1 while the breaker is open: most events were dead-lettered for one reason, or too many are held, and the group waits for an operator.
		# TYPE orderprojector_breaker_open gauge
		orderprojector_breaker_open %d
	`, paused, open)))
	if err != nil {
		c.t.Error(err)
	}
}

func TestTheBreakerLooksAtTheLatestEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		c.handle(bad(60)...)
		time.Sleep(6 * time.Minute)
		c.handle(bad(60)...) // the first ones are too long ago
		c.gate("")
		c.handle(c.good(1000)...)
		time.Sleep(6 * time.Minute)
		c.handle(bad(100)...) // and so are the good ones
		c.gate("paused by the breaker")
	})
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		c.handle(c.good(200)...)
		time.Sleep(4 * time.Minute)
		c.handle(bad(200)...)
		c.gate("")
		c.handle(bad(1)...)
		c.gate("paused by the breaker")
	})
}

// Events of an unsupported type make blocked orders, which wait safely.
func TestUnsupportedEventsDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		values := c.good(500)
		for i := range values {
			values[i] = strings.Replace(values[i], "OrderCreated.v1", "OrderCreated.v9", 1)
		}
		c.handle(values...)
		if n := len(c.store.Letters()); n != 500 {
			t.Errorf("%d letters", n)
		}
		c.gate("")
	})
}

// One broken order is not a bad deployment.
func TestOneOrderDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		var records []projection.Record
		for i := range int64(1000) {
			records = append(records, projection.Record{TopicPartition: projection.TopicPartition{Topic: "orders"}, Offset: i, Key: []byte("o-1"), Value: []byte("x")})
		}
		if err := c.handler.Handle(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		c.gate("")
	})
}

func TestAnOperatorsPauseIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control(t)
		changed, _ := c.control.Closed()
		c.store.SetConsumption("g", projection.Consumption{Pause: &projection.Pause{By: projection.By{Actor: "ann", Comment: "maintenance"}, Since: time.Now()}})
		<-changed // within a second
		c.gate("paused by ann since 2000-01-01T00:00:00Z: maintenance")
		c.metrics(1, 0)
		c.handle(bad(100)...) // a batch in flight goes through, and opens the breaker beside it
		c.gate("paused by the breaker")
		c.gate("paused by ann")
	})
}
