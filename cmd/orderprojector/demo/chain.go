package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/demo/shop"
	"github.com/orderprojector/orderprojector/domain/order"
)

// ErrChain means that an end of the chain does not fit the order service's own tables.
var ErrChain = errors.New("what came out of the chain does not fit what was put in")

// chain is what came out at its ends, against what the order service says.
type chain struct {
	orders, payments int
	points           int64
	told             int      // payments of the shop of which the receiver was told
	acted            int      // on how many keys the receiver has acted, whoever's payment it was
	wrong            []string // what does not fit
}

func (c *chain) blame(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// checkChain compares the projection, the points and the notifications with the order service's tables, none of
// which they have seen.
func (s *services) checkChain(ctx context.Context) (*chain, error) {
	c := &chain{}
	rows, err := s.pool.Query(ctx, `
		SELECT m.order_id, m.currency, m.paid_minor, m.refunded_minor,
		       (m.version, m.state, m.customer_id, m.currency, m.total_minor, m.paid_minor, m.refunded_minor)
		         IS NOT DISTINCT FROM (o.version, o.state, o.customer_id, o.currency, o.total_minor, o.paid_minor, o.refunded_minor),
		       (SELECT coalesce(sum(delta), 0)::bigint FROM points_ledger p WHERE p.order_id = m.order_id),
		       (SELECT count(*) FROM points_ledger p WHERE p.order_id = m.order_id AND p.customer_id IS DISTINCT FROM m.customer_id)
		FROM orderservice.orders m LEFT JOIN orders o USING (order_id) ORDER BY order_id`)
	if err != nil {
		return nil, fmt.Errorf("reading the order service's orders: %w", err)
	}
	var id, currency string
	var paid, refunded, points, strangers int64
	var same bool
	_, err = pgx.ForEachRow(rows, []any{&id, &currency, &paid, &refunded, &same, &points, &strangers}, func() error {
		c.orders++
		if !same {
			c.blame("order %s is projected differently", id)
		}
		earned := whole(order.Money{Minor: paid - refunded, Currency: currency})
		if points != earned {
			c.blame("order %s has earned %d points, not %d", id, points, earned)
		}
		if strangers > 0 {
			c.blame("points of order %s belong to another customer", id)
		}
		c.points += points
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the order service's orders: %w", err)
	}
	return c, s.checkNotifications(ctx, c)
}

// whole is how many whole units of its currency an amount has.
func whole(m order.Money) int64 {
	units, _, _ := strings.Cut(m.Amount(), ".")
	n, err := strconv.ParseInt(units, 10, 64)
	if err != nil {
		return -1 // no number of points
	}
	return n
}

// checkNotifications holds the payments, of the shop and of everybody else, against what the receiver has done.
func (s *services) checkNotifications(ctx context.Context, c *chain) error {
	acted := s.receiver.Acted()
	c.acted = len(acted)
	for key, times := range acted {
		if times != 1 {
			c.blame("the receiver has acted %d times on %s", times, key)
		}
	}
	rows, err := s.pool.Query(ctx, `
		SELECT e.order_id, coalesce(n.state, 'missing'), coalesce(n.idempotency_key, '')
		FROM order_events e LEFT JOIN notifications n ON n.event_id = e.event_id AND n.order_id = e.order_id
		WHERE e.type LIKE 'OrderPaid%' ORDER BY 1`)
	if err != nil {
		return fmt.Errorf("reading payments: %w", err)
	}
	var id, state, key string
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &key}, func() error {
		switch {
		case state != "sent":
			c.blame("the notification of order %s's payment is %s", id, state)
		case acted[key] == 0:
			c.blame("the receiver knows nothing of order %s's payment", id)
		}
		if strings.HasPrefix(id, shop.Prefix) {
			c.payments++
			c.told += acted[key]
		}
		return nil
	})
	return err
}

func (s *services) printChain(out io.Writer, c *chain) {
	did, trouble := s.shop.Summary(), s.receiver.Trouble()
	fmt.Fprintln(out, "\nMeanwhile an order service took commands, and its events went the whole way: outbox, relay, topic, three consumer groups.")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range []struct {
		what  string
		count int64
		mean  string
	}{
		{"orders placed", did.Orders, "in the order service's own tables"},
		{"commands carried out", did.CarriedOut, "each with its event, in one transaction"},
		{"commands repeated", did.Repeated, "under the same idempotency key: nothing changed"},
		{"commands refused", did.Refused, "illegal: nothing changed"},
		{"points earned", c.points, "one per whole unit that was paid and not refunded"},
		{"payments", int64(c.payments), "of the order service"},
		{"receiver told of them", int64(c.told), "once each"},
		{"told in all", int64(c.acted), "with the payments of the faulty traffic: once each"},
		{"connections cut", int64(trouble.Cut), "by the receiver, after it had acted: it was asked, not told again"},
		{"answers 429 and 500", int64(trouble.Busy + trouble.Failed), "by the receiver: told later"},
	} {
		fmt.Fprintf(t, "%s\t%d\t%s\n", line.what, line.count, line.mean)
	}
	_ = t.Flush()
	for i, wrong := range c.wrong {
		if i == shownDifferences {
			fmt.Fprintf(out, "  … and %d more\n", len(c.wrong)-i)
			break
		}
		fmt.Fprintf(out, "WRONG: %s\n", wrong)
	}
}
