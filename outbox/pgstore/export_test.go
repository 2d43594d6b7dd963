package pgstore

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Plans returns how the relay's session carries out each statement: its generic plan, which it keeps.
func (q *Queue) Plans(t *testing.T) map[string]string {
	t.Helper()
	plans := map[string]string{}
	for name, s := range map[string]struct{ sql, args string }{
		"discover":    {sqlDiscover, "0, 9223372036854775807, 2048"},
		"load":        {sqlLoad, "'{o-1,o-2}', 64, 1000000"},
		"remove":      {sqlRemove, "'{1,2,3}'"},
		"remove free": {sqlRemoveFree, "'{1,2,3}'"},
	} {
		if _, err := q.conn.Exec(t.Context(), "DEALLOCATE ALL; PREPARE planned AS "+s.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(name, err)
		}
		rows, err := q.conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE planned ("+s.args+")", pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(name, err)
		}
		plans[name] = strings.Join(lines, "\n")
	}
	return plans
}

// Set sets a parameter of the queue's session.
func (q *Queue) Set(t *testing.T, name, value string) {
	t.Helper()
	if _, err := q.conn.Exec(t.Context(), `SELECT set_config($1, $2, false)`, name, value); err != nil {
		t.Fatal(err)
	}
}
