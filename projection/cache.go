package projection

import (
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cacheBudget is the memory that the caches of all partitions share, in bytes.
type cacheBudget struct {
	limit int64
	used  atomic.Int64
}

// rowCache remembers the rows of a partition for as long as the partition is owned. It
// is never trusted without the guard of the write. Not safe for concurrent use.
type rowCache struct {
	budget *cacheBudget
	rows   *simplelru.LRU[string, cachedRow]
}

type cachedRow struct {
	row    *Row
	weight int64
}

func newRowCache(budget *cacheBudget) *rowCache {
	c := &rowCache{budget: budget}
	// The LRU's own bound is a number of entries; ours is bytes, so that one never bites.
	c.rows, _ = simplelru.NewLRU(1<<30, func(_ string, r cachedRow) { budget.used.Add(-r.weight) })
	return c
}

func (c *rowCache) get(orderID string) *Row {
	r, _ := c.rows.Get(orderID)
	return r.row
}

func (c *rowCache) put(r *Row) {
	before, _ := c.rows.Peek(r.OrderID)
	if before.row == r {
		return
	}
	weight := r.weight()
	c.rows.Add(r.OrderID, cachedRow{r, weight})
	c.budget.used.Add(weight - before.weight)
	for c.budget.used.Load() > c.budget.limit {
		if _, _, ok := c.rows.RemoveOldest(); !ok {
			return
		}
	}
}

func (c *rowCache) forget(orderID string) { c.rows.Remove(orderID) }

func (c *rowCache) clear() { c.rows.Purge() }
