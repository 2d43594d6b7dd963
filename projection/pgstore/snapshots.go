package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// SnapshotHolder is what keeps vacuum from removing rows that were deleted or replaced since.
type SnapshotHolder struct {
	Name         string   `json:"name"` // a session, a prepared transaction or a replication slot
	Xmin         string   `json:"xmin"`
	Transactions int32    `json:"transactions"` // that began since
	Seconds      *float64 `json:"seconds"`      // NULL where the database does not tell
}

// SnapshotHolders returns what holds vacuum back in the database, the oldest first. No privilege is needed. Without
// pg_read_all_stats the times of other users' sessions are not known; those of replication slots never are.
func (r *Reader) SnapshotHolders(ctx context.Context) (holders []SnapshotHolder, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		holders, err = query[SnapshotHolder](ctx, tx, "what holds vacuum back", `
			SELECT name, xmin::text AS xmin, age(xmin) AS transactions, seconds::float8 AS seconds FROM (
			    SELECT format('session %s (%s, %s, %s)', pid, coalesce(usename, 'replication'), application_name, coalesce(state, 'state unknown')) AS name,
			           CASE WHEN backend_xmin IS NULL OR age(backend_xid) > age(backend_xmin) THEN backend_xid ELSE backend_xmin END AS xmin,
			           extract(epoch FROM clock_timestamp() - xact_start) AS seconds
			    FROM pg_stat_activity
			    WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid() AND backend_type IS DISTINCT FROM 'autovacuum worker'
			    UNION ALL
			    SELECT format('prepared transaction %s (%s)', gid, owner), transaction, extract(epoch FROM clock_timestamp() - prepared)
			    FROM pg_prepared_xacts WHERE database = current_database()
			    UNION ALL
			    SELECT format('replication slot %s', slot_name), xmin, NULL FROM pg_replication_slots
			) AS h WHERE xmin IS NOT NULL ORDER BY age(xmin) DESC, seconds DESC NULLS LAST LIMIT 100`)
		return err
	})
	return holders, err
}
