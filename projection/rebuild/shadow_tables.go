package rebuild

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// makeShadow creates the tables to fill, or takes the old set.
func (r *run) makeShadow(ctx context.Context) error {
	return transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) error {
		if r.kind == KindRollback {
			return r.takeOld(ctx, tx)
		}
		if err := createSchema(ctx, tx, r.schemas, r.shadow); err != nil {
			return err
		}
		for _, table := range append([]string{"held_records"}, projected...) {
			if err := createLike(ctx, tx, r.schemas, r.shadow, table); err != nil {
				return err
			}
		}
		for _, statement := range []string{
			`CREATE TABLE shadow.decisions_seen AS SELECT id, undone_at IS NOT NULL AS undone FROM live.operator_decisions`,
			`CREATE TABLE shadow.letters_closed (letter_id bigint PRIMARY KEY)`,
			fmt.Sprintf(`CREATE TABLE shadow.rebuild_set AS SELECT %d::bigint AS rebuild_id, 'new'::text AS kind`, r.report.ID),
		} {
			if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
				return fmt.Errorf("creating the tables to fill: %w", err)
			}
		}
		return r.prepareShadow(ctx, tx)
	})
}

// prepareShadow sets what tells this shadow from everything else: sessions that would
// write into other tables than they believe meet another generation there, and rows remembered from other tables have other revisions.
func (r *run) prepareShadow(ctx context.Context, tx pgx.Tx) error {
	if err := createView(ctx, tx, r.schemas); err != nil {
		return err
	}
	for _, statement := range []string{
		fmt.Sprintf(`ALTER TABLE shadow.order_rows ALTER COLUMN revision SET DEFAULT %d`, r.report.ID*revisions),
		fmt.Sprintf(`ALTER TABLE shadow.projection_watermarks ALTER COLUMN generation SET DEFAULT %d`, -r.report.ID),
		fmt.Sprintf(`UPDATE shadow.projection_watermarks SET generation = %d`, -r.report.ID),
		`DROP TABLE IF EXISTS shadow.differences`,
		`CREATE TABLE shadow.differences (order_id text COLLATE "C" PRIMARY KEY, cause text NOT NULL, detail text, expected boolean NOT NULL)`,
	} {
		if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
			return fmt.Errorf("preparing the tables to fill: %w", err)
		}
	}
	return nil
}

// removeShadow drops the shadow. An old set that was being caught up goes back to its place instead.
func removeShadow(ctx context.Context, tx pgx.Tx, s schemas) error {
	there, err := exists(ctx, tx, s.shadow, "rebuild_set")
	if err != nil {
		return err
	}
	if there {
		var kind string
		if err := tx.QueryRow(ctx, s.sql(`SELECT kind FROM shadow.rebuild_set`)).Scan(&kind); err != nil {
			return fmt.Errorf("reading what is left in schema %s: %w", s.shadow, err)
		}
		if kind == "old" {
			if err := createSchema(ctx, tx, s, s.old); err != nil {
				return err
			}
			if err := moveSet(ctx, tx, s.shadow, s.old); err != nil {
				return err
			}
		}
	}
	return dropSet(ctx, tx, s.shadow)
}

// cleanUp removes what rebuilds that died have left. The lock must be held.
func cleanUp(ctx context.Context, db *pgxpool.Pool, s schemas, log *slog.Logger) error {
	var died int64
	err := transact(ctx, db, cleanUpTimeout, func(tx pgx.Tx) error {
		if err := removeShadow(ctx, tx, s); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.sql(`UPDATE live.rebuilds SET status = CASE WHEN abort_actor IS NULL THEN 'failed' ELSE 'aborted' END,
				failure = 'the process ended without a word', finished_at = clock_timestamp(), updated_at = clock_timestamp()
			WHERE finished_at IS NULL`))
		died = tag.RowsAffected()
		return err
	})
	if err != nil {
		return fmt.Errorf("removing what an earlier rebuild left: %w", err)
	}
	if died > 0 {
		log.Info("removed what a rebuild left that ended without a word")
	}
	return nil
}
