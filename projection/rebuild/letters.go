package rebuild

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Dead letters are not exchanged: the live ones carry operators' work, and other tables name
// their IDs. What the fold has otherwise is put right letter by letter. What operators decided
// about an order explains letters that are missing or left over, unless they block.

// sameRecord joins a live letter (l) with the shadow's (s) of the same record.
const sameRecord = `l.consumer_group = s.consumer_group AND l.kafka_topic = s.kafka_topic AND l.topic_id = s.topic_id
	AND l.kafka_partition = s.kafka_partition AND l.kafka_offset = s.kafka_offset`

// wrongLetters are, for the group $1, the topic $2 and its ID $3: letters that the fold made and the live
// tables never had; closed ones on which the fold blocks, or that an exchange before closed; and open ones that the fold does not have, of what
// it has read.
const wrongLetters = `WITH passed AS (
		SELECT w.kafka_partition, coalesce(f.start, 0) AS start, w.next_offset
		FROM shadow.projection_watermarks w LEFT JOIN unnest($4::integer[], $5::bigint[]) AS f (kafka_partition, start) USING (kafka_partition)
	), wrong AS (
		SELECT 'insert' AS what, NULL::bigint AS live_id, s.id AS shadow_id
		FROM shadow.dead_letters s
		WHERE s.status IN ('open', 'superseded') AND NOT EXISTS (SELECT FROM live.dead_letters l WHERE ` + sameRecord + `)
			AND NOT EXISTS (SELECT FROM live.purged_letters l WHERE ` + sameRecord + `)
			AND (s.blocks AND s.status = 'open' OR NOT EXISTS (SELECT FROM live.operator_decisions d WHERE d.order_id = s.order_id AND d.undone_at IS NULL))
		UNION ALL
		SELECT 'open', l.id, s.id
		FROM shadow.dead_letters s JOIN live.dead_letters l ON ` + sameRecord + `
		WHERE s.status = 'open' AND l.status NOT IN ('open', 'exhausted')
			AND (s.blocks OR EXISTS (SELECT FROM shadow.letters_closed c WHERE c.letter_id = l.id))
			AND NOT EXISTS (SELECT FROM live.operator_decisions d WHERE d.order_id = s.order_id AND d.undone_at IS NULL
				AND d.kind <> 'substitute' AND s.version BETWEEN d.from_version AND d.to_version)
		UNION ALL
		SELECT 'close', l.id, NULL
		FROM live.dead_letters l JOIN passed p ON p.kafka_partition = l.kafka_partition AND l.kafka_offset >= p.start AND l.kafka_offset < p.next_offset
		WHERE l.consumer_group = $1 AND l.kafka_topic = $2 AND l.topic_id = $3 AND l.status IN ('open', 'exhausted')
			AND NOT EXISTS (SELECT FROM shadow.dead_letters s WHERE ` + sameRecord + ` AND s.status = 'open')
			AND (l.blocks OR NOT EXISTS (SELECT FROM live.operator_decisions d WHERE d.order_id = l.order_id AND d.undone_at IS NULL))
	) `

func (c *comparison) letterArgs() []any {
	return []any{c.group, c.topic, c.id, c.startPartitions, c.starts}
}

// countLetters adds the letters that differ to the report, other than those of orders that do anyway.
func (c *comparison) countLetters(ctx context.Context, tx pgx.Tx, r *Report, listed int) error {
	const differing = wrongLetters + `, differing AS (
			SELECT coalesce(l.order_id, s.order_id, '') AS order_id, coalesce(l.kafka_partition, s.kafka_partition) AS kafka_partition,
				coalesce(l.kafka_offset, s.kafka_offset) AS kafka_offset, coalesce(l.reason, s.reason) AS reason, what, l.status
			FROM wrong w LEFT JOIN live.dead_letters l ON l.id = w.live_id LEFT JOIN shadow.dead_letters s ON s.id = w.shadow_id
			WHERE coalesce(l.order_id, s.order_id, '') NOT IN (SELECT order_id FROM shadow.differences)
				AND NOT (what <> 'close' AND coalesce(l.kafka_partition, s.kafka_partition) = ANY ($6::integer[]))
		) `
	args := append(c.letterArgs(), c.beyond)
	if err := tx.QueryRow(ctx, c.sql(differing+`SELECT count(*) FROM differing`), args...).Scan(&r.DifferingLetters); err != nil {
		return fmt.Errorf("comparing dead_letters: %w", err)
	}
	if r.DifferingLetters == 0 {
		return nil
	}
	r.Causes = append(r.Causes, CauseCount{DeadLetter, r.DifferingLetters})
	rows, err := tx.Query(ctx, c.sql(differing+`SELECT order_id, 'dead_letter', format('partition %s offset %s, %s: %s', kafka_partition, kafka_offset, reason,
			CASE what WHEN 'insert' THEN 'there is no letter' WHEN 'open' THEN 'expected open, found ' || status ELSE 'expected none, found ' || status END)
		FROM differing ORDER BY 1, kafka_partition, kafka_offset LIMIT $7`), append(args, max(0, listed-len(r.Differences)))...)
	if err != nil {
		return fmt.Errorf("comparing dead_letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Difference])
	if err != nil {
		return fmt.Errorf("comparing dead_letters: %w", err)
	}
	r.Differences = append(r.Differences, letters...)
	return nil
}

// settleLetters puts the live letters right, and keeps in the old set which of them it closed.
func (c *comparison) settleLetters(ctx context.Context, tx pgx.Tx, actor, note string) error {
	// One statement each would see what the one before did.
	if _, err := tx.Exec(ctx, c.sql(`CREATE TEMPORARY TABLE wrong ON COMMIT DROP AS `+wrongLetters+`SELECT * FROM wrong`), c.letterArgs()...); err != nil {
		return fmt.Errorf("comparing dead_letters: %w", err)
	}
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO old.letters_closed (letter_id) SELECT live_id FROM pg_temp.wrong WHERE what = 'close'`, nil},
		{`UPDATE live.dead_letters l SET status = 'superseded', closed_at = now(), closed_by = $1, closed_comment = $2
			FROM pg_temp.wrong w WHERE w.what = 'close' AND l.id = w.live_id`, []any{actor, note}},
		{`UPDATE live.dead_letters l SET status = 'open', closed_at = NULL, closed_by = NULL, closed_comment = NULL,
				order_id = s.order_id, version = s.version, event_id = s.event_id, type = s.type, reason = s.reason, detail = s.detail, blocks = s.blocks
			FROM pg_temp.wrong w JOIN shadow.dead_letters s ON s.id = w.shadow_id WHERE w.what = 'open' AND l.id = w.live_id`, nil},
		{`INSERT INTO live.dead_letters OVERRIDING USER VALUE SELECT s.* FROM pg_temp.wrong w JOIN shadow.dead_letters s ON s.id = w.shadow_id
			WHERE w.what = 'insert' ORDER BY s.id`, nil},
	} {
		if _, err := tx.Exec(ctx, c.sql(s.sql), s.args...); err != nil {
			return fmt.Errorf("putting dead letters right: %w", err)
		}
	}
	return nil
}
