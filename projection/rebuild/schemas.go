package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// exchanged are the tables that change places. Watermarks and dead letters are not among them:
// they hold the rows of other groups and the work of operators, so the live ones stay and are
// put right by statements.
var exchanged = []string{"order_rows", "order_ledger_archive", "parked_events"}

// projected are the tables that the projector writes: a shadow has one of each.
var projected = []string{"order_rows", "order_ledger_archive", "parked_events", "dead_letters", "projection_watermarks"}

// aside are tables of a set that the projector does not know.
var aside = []string{
	"rebuild_set",    // what the set is
	"decisions_seen", // the operators' decisions that its orders were folded with
	"letters_closed", // the live letters that the exchange for it closed
	"differences",    // of the shadow only
	"held_records",   // what was held when the tables of an old set were live; empty in a new one
}

// schemas are the three places of a set of tables.
type schemas struct {
	live, shadow, old string
	path              string // the sessions' own search_path, with which triggers find what they need
}

// sql puts the schemas' names into a statement that calls them live, shadow and old.
func (s schemas) sql(statement string) string {
	return strings.NewReplacer(
		"live.", quote(s.live)+".", "shadow.", quote(s.shadow)+".", "old.", quote(s.old)+".",
	).Replace(statement)
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// findSchemas finds where the live tables are, which is where the connection's search_path finds them.
func findSchemas(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (schemas, error) {
	var live, path string
	err := db.QueryRow(ctx, `SELECT n.nspname, current_setting('search_path') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('order_rows')`).Scan(&live, &path)
	if errors.Is(err, pgx.ErrNoRows) {
		return schemas{}, &projection.RefusedError{Reason: "the database has no table order_rows", Advice: "run: orderprojector migrate up"}
	}
	if err != nil {
		return schemas{}, fmt.Errorf("looking for the tables: %w", err)
	}
	s := schemas{live: live, shadow: "orderprojector_rebuild", old: "orderprojector_old", path: path}
	if live != "public" { // several installations can share a database
		s.shadow, s.old = s.shadow+"_"+live, s.old+"_"+live
	}
	return s, nil
}

func exists(ctx context.Context, tx pgx.Tx, schema, table string) (yes bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`, schema, table).Scan(&yes)
	return yes, err
}

// createSchema makes a schema for a set, owned by whoever owns the live tables.
func createSchema(ctx context.Context, tx pgx.Tx, s schemas, name string) error {
	var owner string
	err := tx.QueryRow(ctx, `SELECT pg_get_userbyid(c.relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'order_rows'`, s.live).Scan(&owner)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+quote(name)+` AUTHORIZATION `+quote(owner)); err != nil {
		return fmt.Errorf("creating the schema %s: %w", name, err)
	}
	return nil
}

// createLike makes an empty table in another schema that is like a live one, down to the
// names of its indexes, because migrations name them.
func createLike(ctx context.Context, tx pgx.Tx, s schemas, schema, table string) error {
	var options, owner, user string
	err := tx.QueryRow(ctx, `SELECT coalesce(array_to_string(c.reloptions, ', '), ''), pg_get_userbyid(c.relowner), current_user
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, s.live, table).Scan(&options, &owner, &user)
	if err != nil {
		return fmt.Errorf("reading the definition of %s: %w", table, err)
	}
	from, to := quote(s.live, table), quote(schema, table)
	create := `CREATE TABLE ` + to + ` (LIKE ` + from + ` INCLUDING ALL EXCLUDING INDEXES)`
	if options != "" {
		create += ` WITH (` + options + `)`
	}
	if _, err := tx.Exec(ctx, create); err != nil {
		return fmt.Errorf("creating %s: %w", to, err)
	}
	rows, err := tx.Query(ctx, `SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', $2::text, conname, pg_get_constraintdef(oid))
			FROM pg_constraint WHERE conrelid = $1::regclass AND contype IN ('p', 'u', 'x')
		UNION ALL
		SELECT replace(pg_get_indexdef(i.indexrelid), ' ON ' || format('%I.%I', $3::text, $4::text) || ' USING ', ' ON ' || $2::text || ' USING ')
			FROM pg_index i WHERE i.indrelid = $1::regclass AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)`,
		from, to, s.live, table)
	if err != nil {
		return fmt.Errorf("reading the indexes of %s: %w", table, err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("reading the indexes of %s: %w", table, err)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("indexing %s: %w", to, err)
		}
	}
	if owner != user {
		if _, err := tx.Exec(ctx, `ALTER TABLE `+to+` OWNER TO `+quote(owner)); err != nil {
			return fmt.Errorf("giving %s its owner: %w", to, err)
		}
	}
	return nil
}

// createView makes the view of a set that the projector's own statements read. Its names are
// found as the set's sessions find them.
func createView(ctx context.Context, tx pgx.Tx, s schemas) error {
	var definition string
	err := within(ctx, tx, quote(s.live), func() error {
		return tx.QueryRow(ctx, `SELECT pg_get_viewdef($1::regclass)`, quote(s.live, "order_events")).Scan(&definition)
	})
	if err == nil {
		err = within(ctx, tx, quote(s.shadow)+", "+quote(s.live), func() error {
			_, err := tx.Exec(ctx, `CREATE VIEW `+quote(s.shadow, "order_events")+` AS `+definition)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", quote(s.shadow, "order_events"), err)
	}
	return nil
}

// within runs work with a search_path; otherwise a rebuild's statements name every schema.
func within(ctx context.Context, tx pgx.Tx, searchPath string, work func() error) error {
	if _, err := tx.Exec(ctx, `SELECT set_config('search_path', $1, true)`, searchPath); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT set_config('search_path', '', true)`)
	return err
}

// dropSet removes a set of tables, and nothing that others put there.
func dropSet(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, `DROP VIEW IF EXISTS `+quote(schema, "order_events")); err != nil {
		return dropError(schema, err)
	}
	for _, table := range append(append([]string{}, projected...), aside...) {
		if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+quote(schema, table)); err != nil {
			return dropError(schema, err)
		}
	}
	if _, err := tx.Exec(ctx, `DROP SCHEMA IF EXISTS `+quote(schema)); err != nil {
		return dropError(schema, err)
	}
	return nil
}

func dropError(schema string, err error) error {
	return fmt.Errorf("removing the tables in schema %s: %w", schema, err)
}

// moveSet moves a set of tables from one schema to another, which holds none.
func moveSet(ctx context.Context, tx pgx.Tx, from, to string) error {
	if _, err := tx.Exec(ctx, `DROP VIEW IF EXISTS `+quote(from, "order_events")); err != nil {
		return fmt.Errorf("moving the tables from %s to %s: %w", from, to, err)
	}
	for _, table := range append(append([]string{}, projected...), aside...) {
		if _, err := tx.Exec(ctx, `ALTER TABLE IF EXISTS `+quote(from, table)+` SET SCHEMA `+quote(to)); err != nil {
			return fmt.Errorf("moving the tables from %s to %s: %w", from, to, err)
		}
	}
	return nil
}
