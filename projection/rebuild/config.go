package rebuild

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
)

// Defaults of Config.
const (
	DefaultLockTimeout = 500 * time.Millisecond
	DefaultPatience    = 10 * time.Minute
	DefaultMaxListed   = 100
	defaultBatch       = 4096
	defaultBatchBytes  = 2 << 20
)

// Config says what is rebuilt. Zero values mean the defaults.
type Config struct {
	Group   string // consumer group whose projection it is; required
	Topic   string // required
	Log     projection.Log
	Records projection.RecordReader
	// DB is a pool for the rebuild's own statements; it takes up to four connections at a time.
	DB *pgxpool.Pool
	// OpenShadow opens a pool for pgstore.New with the search_path given. The rebuild closes it.
	OpenShadow func(ctx context.Context, searchPath string) (*pgxpool.Pool, error)
	Logger     *slog.Logger
	Hint       func(error) string // what an operator can do about a failure of the database
	By         projection.By      // who does it and why; required

	// MaxDifferences is how many orders and letters may differ for the tables to be exchanged; negative for any number.
	MaxDifferences int64
	// DryRun compares and exchanges nothing.
	DryRun bool
	// MaxListed bounds how many differences are listed; all are counted.
	MaxListed int

	// LockTimeout bounds how long anybody who reads the tables can be made to wait by one attempt to exchange
	// them. Attempts are repeated until Patience is over.
	LockTimeout time.Duration
	Patience    time.Duration

	Writers      int // transactions at the same time while filling
	BatchRecords int
	BatchBytes   int64
	BatchTimeout time.Duration

	// Progress, when set, is called now and then, from one goroutine at a time.
	Progress func(Progress)
}

// Progress is how far a rebuild has come.
type Progress struct {
	Phase   Phase
	Done    int64 // offsets passed
	Total   int64 // offsets to pass, as known so far
	Elapsed time.Duration
}

// Phase is what a rebuild is doing.
type Phase string

// The phases.
const (
	Filling    Phase = "filling"
	Comparing  Phase = "comparing"
	Exchanging Phase = "exchanging"
)

func (c *Config) prepare() error {
	switch {
	case c.Group == "" || c.Topic == "":
		return errors.New("rebuild: Group and Topic are required")
	case c.Log == nil || c.Records == nil || c.DB == nil || c.OpenShadow == nil:
		return errors.New("rebuild: Log, Records, DB and OpenShadow are required")
	case c.By.Actor == "" || c.By.Comment == "":
		return errors.New("rebuild: it has to be said who does it, and why")
	case c.LockTimeout < 0 || c.Patience < 0 || c.Writers < 0 || c.BatchRecords < 0 || c.BatchBytes < 0 || c.BatchTimeout < 0:
		return errors.New("rebuild: a negative number or duration")
	}
	c.LockTimeout = cmp.Or(c.LockTimeout, DefaultLockTimeout)
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	c.MaxListed = cmp.Or(c.MaxListed, DefaultMaxListed)
	c.Writers = cmp.Or(c.Writers, projection.DefaultWriters)
	c.BatchRecords = cmp.Or(c.BatchRecords, defaultBatch)
	c.BatchBytes = cmp.Or(c.BatchBytes, defaultBatchBytes)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Hint == nil {
		c.Hint = func(error) string { return "" }
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return nil
}
