package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	waitsInterval = 2 * time.Second
	// slowBatch is how long a partition may make no progress before the database is asked what its transaction waits for.
	slowBatch = 3 * time.Second
	// waitsMemory is how long an answer holds. Because the statement timeout ends each wait, there are gaps between them.
	waitsMemory = 20 * time.Second
)

// databaseWaits names what the program's transactions wait for inside the database. It asks only while partitions make no progress.
type databaseWaits struct {
	read        func(context.Context) ([]pgstore.Wait, error)
	slow        func() bool
	application string // of the sessions that write
	logger      *slog.Logger

	mu     sync.Mutex
	latest *pgstore.Wait
	seen   time.Time
}

// run asks until ctx ends.
func (d *databaseWaits) run(ctx context.Context) {
	ticker := time.NewTicker(waitsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var wait *pgstore.Wait
		if d.slow() {
			wait = d.ask(ctx)
		}
		d.note(wait)
	}
}

func (d *databaseWaits) ask(ctx context.Context) *pgstore.Wait {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	waits, err := d.read(ctx)
	if err != nil {
		return nil // what keeps the database from an answer keeps batches from theirs, and is told there
	}
	for _, w := range waits {
		if w.Application == d.application {
			return &w
		}
	}
	return nil
}

func (d *databaseWaits) note(wait *pgstore.Wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.latest
	switch {
	case wait != nil:
		d.latest, d.seen = wait, time.Now()
	case time.Since(d.seen) > waitsMemory:
		d.latest = nil
	}
	switch {
	case d.latest != nil && (before == nil || before.Standby != d.latest.Standby):
		d.logger.Warn(d.latest.String(), "hint", d.latest.Hint())
	case d.latest == nil && before != nil:
		d.logger.Info("the database holds no transaction of this program up any more")
	}
}

// trouble says what is waited for, nil for nothing. A wait for a lock is worth a word once consumption stalls.
func (d *databaseWaits) trouble(stalled bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest == nil || !d.latest.Standby && !stalled {
		return nil
	}
	return errors.New(d.latest.String() + " (" + d.latest.Hint() + ")")
}
