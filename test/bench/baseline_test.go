package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

const baselineTables = `
CREATE TABLE plain_orders (order_id text PRIMARY KEY, version bigint NOT NULL, state text NOT NULL, customer_id text NOT NULL,
    currency text NOT NULL, total_minor bigint NOT NULL, paid_minor bigint NOT NULL, refunded_minor bigint NOT NULL,
    updated_at timestamptz NOT NULL);
CREATE TABLE plain_events (order_id text NOT NULL, version bigint NOT NULL, event_id text NOT NULL, type text NOT NULL,
    occurred_at timestamptz NOT NULL, PRIMARY KEY (order_id, version))`

// baseline is the rate, in records per second, of the consumer that most teams write first: a member of a
// group that takes one record after another, one transaction each, with a journal that tells duplicates. It
// acknowledges each record once that is committed, or, with ackEach false, what a poll returned, at its end.
func (w *world) baseline(dsn string, records int, ackEach bool) float64 {
	pool := w.pool(dsn, 1)
	if _, err := pool.Exec(w.b.Context(), baselineTables); err != nil {
		w.b.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(fmt.Sprintf("plain-%v", ackEach)),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.b.Fatal(err)
	}
	defer client.Close()
	ack := func(records ...*kgo.Record) {
		if err := client.CommitRecords(w.b.Context(), records...); err != nil {
			w.b.Fatal(err)
		}
	}
	var began time.Time
	done := 0
	for done < records {
		fetches := client.PollRecords(w.b.Context(), 500)
		if err := fetches.Err(); err != nil {
			w.b.Fatal(err)
		}
		if began.IsZero() {
			began = time.Now() // joining the group does not count
		}
		all := fetches.Records()
		for _, r := range all {
			if err := plain(w.b.Context(), pool, r); err != nil {
				w.b.Fatal(err)
			}
			if done++; ackEach {
				ack(r)
			}
		}
		if !ackEach {
			ack(all...)
		}
	}
	return float64(done) / time.Since(began).Seconds()
}

func plain(ctx context.Context, pool *pgxpool.Pool, r *kgo.Record) error {
	env, err := projection.JSONDecoder{}.Decode(&projection.Record{Key: r.Key, Value: r.Value})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var o order.Order
		var version int64
		err := tx.QueryRow(ctx, `SELECT version, state, customer_id, currency, total_minor, paid_minor, refunded_minor
			FROM plain_orders WHERE order_id = $1 FOR UPDATE`, env.OrderID).
			Scan(&version, &o.State, &o.CustomerID, &o.Currency, &o.TotalMinor, &o.PaidMinor, &o.RefundedMinor)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if env.Version != version+1 {
			return nil
		}
		if o, err = order.Apply(o, env.Event); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO plain_events VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			env.OrderID, env.Version, env.EventID, env.Type, env.OccurredAt); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO plain_orders VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (order_id) DO UPDATE SET version = excluded.version, state = excluded.state, total_minor = excluded.total_minor,
			paid_minor = excluded.paid_minor, refunded_minor = excluded.refunded_minor, updated_at = excluded.updated_at`,
			env.OrderID, env.Version, string(o.State), o.CustomerID, o.Currency, o.TotalMinor, o.PaidMinor, o.RefundedMinor, env.OccurredAt)
		return err
	})
}
