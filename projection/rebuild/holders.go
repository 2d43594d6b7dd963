package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// holders tells who keeps the tables from being exchanged, as far as the user may see that; "" when nobody does any more.
func (r *run) holders(ctx context.Context) string {
	var held []string
	err := transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT format('process %s (%s), %s since %s', a.pid, coalesce(nullif(a.application_name, ''), a.usename, 'unknown'),
				coalesce(a.state, 'running'), to_char(a.xact_start AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"'))
			FROM pg_stat_activity a
			WHERE a.pid <> pg_backend_pid() AND a.application_name NOT LIKE 'orderprojector-%' AND EXISTS (
				SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE l.pid = a.pid AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
					AND n.nspname = $1 AND (c.relname = ANY ($2::text[]) OR c.relkind = 'v'))
			ORDER BY a.xact_start LIMIT 3`, r.live, projected)
		if err != nil {
			return err
		}
		held, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || len(held) == 0 {
		return "" // it is only told to help
	}
	return fmt.Sprintf("held by %s", strings.Join(held, "; "))
}
