package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// bounds asks for the topic's bounds, a few times while the cluster is in motion.
func (r *run) bounds(ctx context.Context) ([]projection.LogRange, error) {
	pause := firstPause
	for {
		ranges, err := r.cfg.Log.Ranges(ctx, r.topic)
		if err == nil {
			return ranges, nil
		}
		if pause > longestPause/2 || ctx.Err() != nil {
			return nil, fmt.Errorf("reading the topic's bounds: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// chooseTargets decides how far each partition is read: as far as the live tables are, so that the two can be
// compared; to its end where those hold nothing of it.
func (r *run) chooseTargets(ctx context.Context) error {
	var marks map[int32]int64
	err := transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) (err error) {
		if err := r.refuseOthers(ctx, tx); err != nil {
			return err
		}
		marks, err = r.readMarks(ctx, tx, "live")
		return err
	})
	if err != nil {
		return err
	}
	now, err := r.bounds(ctx) // later than the watermarks
	if err != nil {
		return err
	}
	ends := map[int32]int64{}
	for _, p := range now {
		ends[p.Partition] = p.Until
	}
	for _, p := range r.ranges {
		mark, found := marks[p.Partition]
		beyond := !found || mark <= p.From
		if beyond {
			r.beyond = append(r.beyond, p.Partition)
		}
		if mark > ends[p.Partition] {
			return &projection.RefusedError{
				Reason: fmt.Sprintf("the watermark of %s is at offset %d, beyond the end of its log at %d", p.TopicPartition, mark, ends[p.Partition]),
				Advice: "the topic lost records: see the section on positions beyond the end of the log in docs/operations.md",
			}
		}
		r.report.Partitions = append(r.report.Partitions, Partition{Partition: p.Partition, LogStart: p.From, LogEnd: p.Until, Beyond: beyond})
	}
	return nil
}

// refuseOthers refuses the group of a consumer beside the projector: its watermarks are not those of the tables.
func (r *run) refuseOthers(ctx context.Context, tx pgx.Tx) error {
	var consumer string
	err := tx.QueryRow(ctx, r.sql(`SELECT consumer FROM live.consumer_claims WHERE consumer_group = $1`), r.group).Scan(&consumer)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading consumer_claims: %w", err)
	}
	return &projection.RefusedError{
		Reason: fmt.Sprintf("the group %s is that of %s, which does not project", r.group, consumer), Advice: "name the projector's group with --group",
	}
}

// readMarks reads the watermarks of a set.
func (r *run) readMarks(ctx context.Context, tx pgx.Tx, set string) (map[int32]int64, error) {
	rows, err := tx.Query(ctx, r.sql(`SELECT kafka_partition, next_offset FROM `+set+`.projection_watermarks
		WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3`), r.group, r.topic, r.id)
	if err != nil {
		return nil, fmt.Errorf("reading the watermarks: %w", err)
	}
	marks := map[int32]int64{}
	var partition int32
	var next int64
	if _, err := pgx.ForEachRow(rows, []any{&partition, &next}, func() error { marks[partition] = next; return nil }); err != nil {
		return nil, fmt.Errorf("reading the watermarks: %w", err)
	}
	return marks, nil
}

// targets are the offsets to read to, given the live watermarks.
func (r *run) targets(marks map[int32]int64) map[int32]int64 {
	targets := map[int32]int64{}
	for _, p := range r.ranges {
		targets[p.Partition] = marks[p.Partition]
		if slices.Contains(r.beyond, p.Partition) {
			targets[p.Partition] = max(marks[p.Partition], r.end[p.Partition])
		}
	}
	return targets
}

// checkRemoved refuses when orders were made from records that the log does not hold any more:
// the rebuilt tables would not have them.
func (r *run) checkRemoved(ctx context.Context) error {
	if !slices.ContainsFunc(r.ranges, func(p projection.LogRange) bool { return p.From > 0 }) {
		return nil
	}
	var orders, letters int64
	var first *string
	err := transact(ctx, r.cfg.DB, longTimeout, func(tx pgx.Tx) error {
		const starts = `unnest($1::integer[], $2::bigint[]) AS f (kafka_partition, start)`
		err := tx.QueryRow(ctx, r.sql(`SELECT count(*), min(order_id) FROM (
				SELECT order_id FROM live.order_rows o WHERE EXISTS (SELECT FROM unnest(o.ledger_partitions, o.ledger_offsets) AS e (kafka_partition, kafka_offset)
					JOIN `+starts+` USING (kafka_partition) WHERE e.kafka_offset < f.start)
				UNION SELECT order_id FROM live.order_ledger_archive JOIN `+starts+` USING (kafka_partition) WHERE kafka_offset < f.start
				UNION SELECT order_id FROM live.parked_events JOIN `+starts+` USING (kafka_partition)
					WHERE kafka_offset < f.start AND consumer_group = $3 AND kafka_topic = $4 AND topic_id = $5
			) AS o`), r.startPartitions, r.starts, r.group, r.topic, r.id).Scan(&orders, &first)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, r.sql(`SELECT count(*) FROM live.dead_letters JOIN `+starts+` USING (kafka_partition)
			WHERE kafka_offset < f.start AND consumer_group = $3 AND kafka_topic = $4 AND topic_id = $5 AND status IN ('open', 'exhausted') AND blocks`),
			r.startPartitions, r.starts, r.group, r.topic, r.id).Scan(&letters)
	})
	if err != nil {
		return fmt.Errorf("looking for orders whose records are gone: %w", err)
	}
	if orders == 0 && letters == 0 {
		return nil
	}
	reason := fmt.Sprintf("retention has removed records that %d orders and %d blocking dead letters were made from: rebuilt tables would lose them", orders, letters)
	if first != nil {
		reason += " (the first is order " + *first + ")"
	}
	return &projection.RefusedError{
		Reason: reason, Advice: "restore the records, or repair single orders, whose records are all there, with rebuild --orders",
	}
}

// follow reads until the shadow is close to the live tables.
func (r *run) follow(ctx context.Context) error {
	for {
		var marks, rebuilt map[int32]int64
		err := r.patiently(ctx, func() error {
			return transact(ctx, r.cfg.DB, shortTimeout, func(tx pgx.Tx) (err error) {
				if rebuilt, err = r.readMarks(ctx, tx, "shadow"); err == nil {
					marks, err = r.readMarks(ctx, tx, "live")
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		if err := r.fill.rewind(ctx, rebuilt); err != nil {
			return err
		}
		targets := r.targets(marks)
		left := r.fill.left(targets)
		r.goal.Store(r.fill.passed.Load() + left)
		if err := r.fill.to(ctx, targets); err != nil {
			return err
		}
		if left <= closeEnough {
			return nil
		}
	}
}
