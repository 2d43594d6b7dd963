package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// checkOld refuses to roll back to tables that are not there, or do not fit any more.
func (r *run) checkOld(ctx context.Context, tx pgx.Tx) error {
	there, err := exists(ctx, tx, r.old, "rebuild_set")
	if err != nil {
		return err
	}
	if !there {
		return &projection.NotFoundError{What: "a rebuild that can be rolled back"}
	}
	var id, version int64
	var fits bool
	err = tx.QueryRow(ctx, r.sql(`SELECT rebuild_id, schema_version, consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 FROM old.rebuild_set`),
		r.group, r.topic, r.id).Scan(&id, &version, &fits)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &projection.NotFoundError{What: "a rebuild that can be rolled back"}
	case err != nil:
		return fmt.Errorf("reading what the old tables are: %w", err)
	case !fits:
		return &projection.RefusedError{
			Reason: fmt.Sprintf("the old tables, which rebuild %d replaced, are of another group or topic", id), Advice: "name the group and the topic of that rebuild",
		}
	case version != r.version:
		return &projection.RefusedError{
			Reason: fmt.Sprintf("the old tables, which rebuild %d replaced, are of schema version %d, and the live ones of version %d", id, version, r.version),
			Advice: "use rebuild instead: it makes the tables anew",
		}
	}
	return nil
}

// takeOld makes the old set the shadow. Its letters_closed and decisions_seen come with it.
func (r *run) takeOld(ctx context.Context, tx pgx.Tx) error {
	if err := createSchema(ctx, tx, r.schemas, r.shadow); err != nil {
		return err
	}
	if err := moveSet(ctx, tx, r.old, r.shadow); err != nil {
		return err
	}
	return r.prepareShadow(ctx, tx)
}
