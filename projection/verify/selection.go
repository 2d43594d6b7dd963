package verify

import (
	"context"
	"crypto/md5" //nolint:gosec // spreads, protects nothing; PostgreSQL has it too
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// chooser decides which orders belong to a selection. A sample is chosen by a
// hash that PostgreSQL computes as well, so that both sides choose alike.
type chooser struct {
	orders map[string]bool // nil unless orders are named
	prefix string          // of what is hashed
	below  string          // the hash, in hexadecimal, is below it; "" for no sample
}

func (c *chooser) all() bool { return c.orders == nil && c.below == "" }

func (c *chooser) hash(orderID string) string {
	sum := md5.Sum([]byte(c.prefix + orderID)) //nolint:gosec // spreads, protects nothing
	return hex.EncodeToString(sum[:])
}

func (c *chooser) has(orderID string) bool {
	switch {
	case c.orders != nil:
		return c.orders[orderID]
	case c.below != "":
		return c.hash(orderID) < c.below
	}
	return true
}

// wants reports whether a record can matter to the selection. Without a key,
// only the value tells, so that the fold has to see it.
func (c *chooser) wants(r *projection.Record) bool {
	return r.Key == nil || c.all() || c.has(string(r.Key))
}

// newChooser makes the chooser of a selection. Of a sample it takes a tenth
// more than asked for, because it cannot know the topic's orders yet; sample cuts it down.
func newChooser(ctx context.Context, db Database, s Selection) (*chooser, error) {
	c := &chooser{prefix: strconv.FormatUint(s.Seed, 10) + ":"}
	switch {
	case len(s.Orders) > 0:
		c.orders = make(map[string]bool, len(s.Orders))
		for _, id := range s.Orders {
			c.orders[id] = true
		}
	case s.Sample > 0:
		var total int64
		err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `SELECT count(*) FROM order_rows`).Scan(&total)
		})
		if err != nil {
			return nil, fmt.Errorf("counting the orders: %w", err)
		}
		c.below = threshold(int64(s.Sample), total)
	}
	return c, nil
}

// threshold is below which hash a share of a little more than n out of total orders is.
func threshold(n, total int64) string {
	wanted := n + n/10 + 10
	if wanted >= total {
		return "g" // above every hexadecimal text
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 128)
	limit.Mul(limit, big.NewInt(wanted))
	limit.Div(limit, big.NewInt(total))
	return fmt.Sprintf("%032x", limit)
}

// sample keeps the n orders with the lowest hashes.
func (c *chooser) sample(ids []string, n int) []string {
	if len(ids) <= n {
		return ids
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(c.hash(a), c.hash(b)) })
	ids = ids[:n]
	slices.Sort(ids)
	return ids
}
