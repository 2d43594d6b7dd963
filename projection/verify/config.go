package verify

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// Database begins the read-only transactions; a *pgstore.Reader is one.
type Database interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Config says what is verified. Zero values mean the defaults.
type Config struct {
	Group string // consumer group whose watermarks and letters are meant; required
	Topic string // required
	Log   projection.Log
	// Records reads single records again, where an order's events are in several partitions.
	Records   projection.RecordReader
	DB        Database
	Logger    *slog.Logger
	Selection Selection
	// EventIDs also looks for event IDs that several orders use. It needs the whole topic.
	EventIDs bool
	// MaxListed bounds how many differing orders are listed; all are counted.
	MaxListed int
	// Rechecks are the pauses after which orders that differ are looked at
	// again: what a member is still working on is no difference. Default: 1, 2 and 3 seconds,
	// which is longer than a sweep takes to come.
	Rechecks []time.Duration
	// Progress, when set, is called now and then.
	Progress func(Progress)
}

// Selection chooses orders. The zero value is all of them.
type Selection struct {
	Orders []string // these
	Sample int      // or so many, chosen by a hash of their IDs
	Seed   uint64   // of that hash
}

func (s Selection) whole() bool { return len(s.Orders) == 0 && s.Sample == 0 }

// Progress is how far the reading has come.
type Progress struct {
	Records, Total int64 // offsets passed, and to pass as known so far
	Elapsed        time.Duration
}

// DefaultMaxListed is how many differing orders are listed.
const DefaultMaxListed = 100

func (c *Config) prepare() error {
	switch {
	case c.Group == "" || c.Topic == "":
		return errors.New("verify: Group and Topic are required")
	case c.Log == nil || c.Records == nil || c.DB == nil:
		return errors.New("verify: Log, Records and DB are required")
	case c.Selection.Sample < 0:
		return errors.New("verify: a negative sample")
	case c.EventIDs && !c.Selection.whole():
		return errors.New("verify: event IDs are looked for in the whole topic only")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxListed == 0 {
		c.MaxListed = DefaultMaxListed
	}
	if c.Rechecks == nil {
		c.Rechecks = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	c.Selection.Orders = slices.Compact(slices.Sorted(slices.Values(c.Selection.Orders)))
	return nil
}
