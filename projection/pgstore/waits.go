package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Wait is a session of the program's own database user whose statement waits inside the database.
type Wait struct {
	PID         int32   `json:"pid"`
	Application string  `json:"application"`
	Seconds     float64 `json:"seconds"`
	Standby     bool    `json:"standby"`            // a COMMIT waits for a synchronous standby; else a lock is waited for
	Blockers    string  `json:"blockers,omitempty"` // the sessions that hold the lock
}

func (w Wait) String() string {
	waits := time.Duration(w.Seconds * float64(time.Second)).Round(time.Second)
	if w.Standby {
		return fmt.Sprintf("COMMIT waits for a synchronous standby: session %d (%s) for %s", w.PID, w.Application, waits)
	}
	return fmt.Sprintf("session %d (%s) has waited for a lock for %s, which is held by %s", w.PID, w.Application, waits, w.Blockers)
}

// Hint says where to look.
func (w Wait) Hint() string {
	if w.Standby {
		return "start the standby that synchronous_standby_names names, or take it out of the list: SELECT application_name, state, sync_state FROM pg_stat_replication"
	}
	return "end the transaction that holds the lock: SELECT pg_terminate_backend(pid)"
}

// Waits returns the statements of the program's own user that have waited for longer than a moment: for a synchronous
// standby, or for a lock. An error of a batch names neither. No privilege is needed.
func (r *Reader) Waits(ctx context.Context) (waits []Wait, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		waits, err = query[Wait](ctx, tx, "pg_stat_activity", `
			SELECT a.pid, coalesce(a.application_name, '') AS application, extract(epoch FROM clock_timestamp() - a.query_start)::float8 AS seconds,
			       a.wait_event = 'SyncRep' AS standby,
			       coalesce((SELECT string_agg(format('session %s (%s, %s, %s)', b.pid, b.usename, b.application_name, b.state), ', ')
			                 FROM pg_stat_activity b WHERE a.wait_event_type = 'Lock' AND b.pid = ANY (pg_blocking_pids(a.pid))), '') AS blockers
			FROM pg_stat_activity a
			WHERE a.datname = current_database() AND a.usename = session_user AND a.pid <> pg_backend_pid()
			  AND (a.wait_event = 'SyncRep' OR a.wait_event_type = 'Lock' AND a.wait_event <> 'advisory')
			  AND a.query_start < clock_timestamp() - interval '2 seconds'
			ORDER BY standby DESC, seconds DESC LIMIT 10`)
		return err
	})
	return waits, err
}
