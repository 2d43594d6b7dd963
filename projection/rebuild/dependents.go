package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// A view follows the table that it was made of, not that table's name, wherever the
// table moves. So the views over the live tables, whoever made them, are made again in place, which keeps
// their owners, their grants and what was made of them in turn. What cannot be moved like that is
// refused before anything is done.

// dependentView is a view over live tables.
type dependentView struct {
	name, owner, definition, options string // name is qualified and quoted
}

// create replaces the view by one of the same definition over the tables that have the names now.
func (v dependentView) create() string {
	options := ""
	if v.options != "" {
		options = " WITH (" + v.options + ")"
	}
	return `CREATE OR REPLACE VIEW ` + v.name + options + ` AS ` + v.definition
}

// dependentViews reads the views. The transaction's search_path is empty, so that their definitions name schemas.
func dependentViews(ctx context.Context, tx pgx.Tx, s schemas) ([]dependentView, error) {
	rows, err := tx.Query(ctx, `SELECT DISTINCT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(c.relowner), pg_get_viewdef(c.oid),
			coalesce(array_to_string(c.reloptions, ', '), '')
		FROM pg_depend d
		JOIN pg_rewrite r ON r.oid = d.objid
		JOIN pg_class c ON c.oid = r.ev_class
		JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_class t ON t.oid = d.refobjid
		JOIN pg_namespace tn ON tn.oid = t.relnamespace
		WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
			AND c.relkind = 'v' AND tn.nspname = $1 AND t.relname = ANY ($2::text[])
		ORDER BY 1`, s.live, exchanged)
	if err != nil {
		return nil, fmt.Errorf("reading the views over the tables: %w", err)
	}
	views, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v dependentView, err error) {
		err = row.Scan(&v.name, &v.owner, &v.definition, &v.options)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the views over the tables: %w", err)
	}
	return views, nil
}

// triggers reads the definitions of what others want to happen when the live tables are written.
func triggers(ctx context.Context, tx pgx.Tx, s schemas) (drop, create []string, err error) {
	rows, err := tx.Query(ctx, `SELECT format('DROP TRIGGER %I ON %I.%I', t.tgname, n.nspname, c.relname), pg_get_triggerdef(t.oid)
			|| CASE t.tgenabled WHEN 'O' THEN '' ELSE format('; ALTER TABLE %I.%I %s TRIGGER %I', n.nspname, c.relname,
				CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, t.tgname) END
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE NOT t.tgisinternal AND n.nspname = $1 AND c.relname = ANY ($2::text[]) ORDER BY t.oid`, s.live, exchanged)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the triggers of the tables: %w", err)
	}
	var dropping, creating string
	_, err = pgx.ForEachRow(rows, []any{&dropping, &creating}, func() error {
		drop = append(drop, dropping)
		create = append(create, strings.Split(creating, "; ALTER TABLE ")[0])
		if i := strings.Index(creating, "; ALTER TABLE "); i >= 0 {
			create = append(create, creating[i+2:])
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the triggers of the tables: %w", err)
	}
	return drop, create, nil
}

// grants are the statements that give a shadow table the grants of the live one.
func grants(ctx context.Context, tx pgx.Tx, s schemas) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT format('GRANT %s%s ON %I.%I TO %s%s', g.privilege, g.columns, $2::text, g.relname,
			CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
			CASE WHEN g.grantable THEN ' WITH GRANT OPTION' ELSE '' END)
		FROM (
			SELECT c.relname, a.grantee, a.privilege_type AS privilege, '' AS columns, a.is_grantable AS grantable
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN aclexplode(c.relacl) a
			WHERE n.nspname = $1 AND c.relname = ANY ($3::text[])
			UNION ALL
			SELECT c.relname, a.grantee, a.privilege_type, format(' (%I)', t.attname), a.is_grantable
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN aclexplode(t.attacl) a
			WHERE n.nspname = $1 AND c.relname = ANY ($3::text[]) AND NOT t.attisdropped
		) AS g`, s.live, s.shadow, exchanged)
	if err != nil {
		return nil, fmt.Errorf("reading the grants on the tables: %w", err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("reading the grants on the tables: %w", err)
	}
	return statements, nil
}

// obstacles refuses what an exchange would break.
func obstacles(ctx context.Context, tx pgx.Tx, s schemas) error {
	rows, err := tx.Query(ctx, `WITH t AS (
			SELECT c.oid, c.relname, c.relkind, c.relowner, c.relrowsecurity, c.relispartition FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])
		)
		SELECT format('%s is not an ordinary table (it is partitioned)', relname) FROM t WHERE relkind <> 'r' OR relispartition
		UNION ALL SELECT format('%s has children', t.relname) FROM t JOIN pg_inherits i ON i.inhparent = t.oid
		UNION ALL SELECT format('%s belongs to role %s, of which the user %s is no member', relname, pg_get_userbyid(relowner), current_user)
			FROM t WHERE NOT pg_has_role(relowner, 'USAGE')
		UNION ALL SELECT format('%s has row-level security', relname) FROM t WHERE relrowsecurity
		UNION ALL SELECT format('a foreign key, %s of %s, refers to %s', c.conname, c.conrelid::regclass, t.relname)
			FROM t JOIN pg_constraint c ON c.confrelid = t.oid WHERE c.contype = 'f'
		UNION ALL SELECT format('%s has a foreign key, %s', t.relname, c.conname) FROM t JOIN pg_constraint c ON c.conrelid = t.oid WHERE c.contype = 'f'
		UNION ALL SELECT format('publication %s names %s', p.pubname, t.relname)
			FROM t JOIN pg_publication_rel r ON r.prrelid = t.oid JOIN pg_publication p ON p.oid = r.prpubid
		UNION ALL SELECT DISTINCT format('%s %s is made of %s', CASE c.relkind WHEN 'm' THEN 'materialized view' ELSE 'rule of' END, c.oid::regclass, t.relname)
			FROM t JOIN pg_depend d ON d.refobjid = t.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
			JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class WHERE c.relkind <> 'v'
		UNION ALL SELECT DISTINCT format('function %s is made of %s', d.objid::regprocedure, t.relname)
			FROM t JOIN pg_depend d ON d.refobjid = t.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_proc'::regclass
		UNION ALL SELECT DISTINCT format('view %s, which is made of %s, belongs to role %s, of which the user %s is no member',
				c.oid::regclass, t.relname, pg_get_userbyid(c.relowner), current_user)
			FROM t JOIN pg_depend d ON d.refobjid = t.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
			JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class WHERE c.relkind = 'v' AND NOT pg_has_role(c.relowner, 'USAGE')`,
		s.live, exchanged)
	if err != nil {
		return fmt.Errorf("looking at what depends on the tables: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("looking at what depends on the tables: %w", err)
	}
	ofOld, err := dependentViews(ctx, tx, schemas{live: s.old})
	if err != nil {
		return err
	}
	for _, v := range ofOld {
		found = append(found, fmt.Sprintf("view %s is made of tables that an earlier rebuild replaced, which are to be dropped", v.name))
	}
	if len(found) > 0 {
		return &projection.RefusedError{
			Reason: "the tables cannot be exchanged: " + strings.Join(found, "; "),
			Advice: "a rebuild is run by the owner of the tables, and moves their indexes, triggers, views and grants; remove the rest, or repair orders one by one with rebuild --orders",
		}
	}
	return nil
}
