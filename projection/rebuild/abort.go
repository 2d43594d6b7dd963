package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
)

// Abort ends the rebuild that runs, wherever that is, or removes what is left of one that
// died. It waits, until ctx ends, for a running one to notice. The error is a *projection.NotFoundError when there is neither.
func Abort(ctx context.Context, db *pgxpool.Pool, by projection.By, log *slog.Logger) (Record, error) {
	var record Record
	s, err := findSchemas(ctx, db)
	if err != nil {
		return record, err
	}
	err = transact(ctx, db, shortTimeout, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.sql(`UPDATE live.rebuilds SET abort_actor = $1, abort_comment = $2
			WHERE id = (SELECT max(id) FROM live.rebuilds WHERE finished_at IS NULL) RETURNING `+recordColumns), by.Actor, by.Comment)
		if err != nil {
			return err
		}
		if record, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Record]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(`INSERT INTO live.audit_log (actor, action, target, comment) VALUES ($1, 'rebuild.abort', $2, $3)`),
			by.Actor, fmt.Sprintf("rebuild %d", record.ID), by.Comment)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return record, &projection.NotFoundError{What: "a rebuild to abort"}
	}
	if err != nil {
		return record, fmt.Errorf("asking the rebuild to stop: %w", err)
	}
	tick := time.NewTicker(beat / 4)
	defer tick.Stop()
	for {
		l, err := acquire(ctx, db, s.live, log)
		if err == nil {
			defer l.release(ctx)
			if err := cleanUp(ctx, db, s, log); err != nil {
				return record, err
			}
			rows, err := db.Query(ctx, s.sql(`SELECT `+recordColumns+` FROM live.rebuilds WHERE id = $1`), record.ID)
			if err != nil {
				return record, fmt.Errorf("reading how the rebuild ended: %w", err)
			}
			return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Record])
		}
		var busy *BusyError
		if !errors.As(err, &busy) {
			return record, err
		}
		select {
		case <-ctx.Done():
			return record, fmt.Errorf("rebuild %d has been asked to stop, and still runs: %w", record.ID, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
