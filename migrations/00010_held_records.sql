-- Held records of the projection, members' heartbeats, and what an older program must not touch.
-- A record is held when the record alone cannot be made durable while other orders can. Its order shows as
-- blocked, the watermark passes the record, and the record is tried again until its cause ends.
-- Programs of before do not know that an order's records may wait here. They must not work on these
-- tables, also with --allow-newer-schema. Renamed columns and types stop them: every batch reads
-- the columns, and every change of a row names the types.

-- +goose Up
ALTER TABLE projection_watermarks RENAME COLUMN skip_from TO skipped_from;
ALTER TABLE projection_watermarks RENAME COLUMN skip_to TO skipped_to;
ALTER TYPE order_change RENAME TO order_row_change;
ALTER TYPE order_append RENAME TO order_row_append;

-- The oldest schema version that a program must know to work on this database.
CREATE TABLE schema_requirement (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    oldest_program bigint NOT NULL
);
INSERT INTO schema_requirement (oldest_program) VALUES (10);

-- Open held records of the partition. Counts and open held records add up to the visible records below next_offset.
ALTER TABLE projection_watermarks ADD COLUMN held bigint NOT NULL DEFAULT 0;

-- Held records of the consumers counted as parked before: they are counted with their outcome from now on.
WITH h AS (
    SELECT consumer_group, kafka_topic, topic_id, kafka_partition, count(*) AS held
    FROM held_records GROUP BY 1, 2, 3, 4
)
UPDATE projection_watermarks w SET held = h.held, parked = w.parked - h.held
FROM h
WHERE w.consumer_group = h.consumer_group AND w.kafka_topic = h.kafka_topic AND w.topic_id = h.topic_id AND w.kafka_partition = h.kafka_partition;

ALTER TABLE held_records
    ALTER COLUMN order_id TYPE text COLLATE "C",
    DROP COLUMN applied_then,
    -- a record of the projection: its order shows as blocked
    ADD COLUMN projected boolean NOT NULL DEFAULT false,
    ADD COLUMN version bigint,          -- that the record claims; NULL where that is unknown
    ADD COLUMN type text,               -- of the event; NULL where that is unknown
    ADD COLUMN class text NOT NULL DEFAULT 'infrastructure', -- of the latest failure
    ADD COLUMN failed_at timestamptz NOT NULL DEFAULT now(), -- the latest failure
    ADD COLUMN retried_by text;         -- who asked for another attempt at once
UPDATE held_records SET failed_at = held_at;
-- A queue holds the records of one order in one partition, in offset order. Its head alone is tried.
CREATE INDEX held_records_queue ON held_records (consumer_group, order_id, kafka_topic, topic_id, kafka_partition, kafka_offset);
CREATE INDEX held_records_projected ON held_records (order_id) WHERE projected;

-- A letter made of a held record is written without its order's row.
ALTER TABLE dead_letters ADD COLUMN was_held boolean NOT NULL DEFAULT false;
CREATE INDEX dead_letters_was_held ON dead_letters (order_id, version) WHERE was_held AND blocks AND status IN ('open', 'exhausted');

-- A Kafka timestamp is a number of milliseconds, of which a timestamptz holds a part. Where it does not hold the
-- number, kafka_timestamp is the nearest time that it holds and this is the number; NULL elsewhere.
ALTER TABLE parked_events ADD COLUMN kafka_timestamp_ms bigint;
ALTER TABLE dead_letters ADD COLUMN kafka_timestamp_ms bigint;
ALTER TABLE held_records ADD COLUMN kafka_timestamp_ms bigint;

ALTER TABLE consumption_control DROP CONSTRAINT consumption_control_breaker_reason_check;
ALTER TABLE consumption_control ADD CONSTRAINT consumption_control_breaker_reason_check
    CHECK (breaker_reason IN ('invalid', 'conflict', 'illegal', 'held'));

ALTER TABLE operator_deadlines ADD COLUMN held_record interval NOT NULL DEFAULT '15 minutes'; -- after the record was held

-- One row per running member, written every few seconds. A partition that no fresh row names is
-- read by no member of this program, whoever else is in the consumer group.
CREATE TABLE group_members (
    consumer_group text NOT NULL,
    member         text NOT NULL,           -- of one process, from its start to its end
    kafka_topic    text NOT NULL,
    host           text NOT NULL,
    process_id     integer NOT NULL,
    program        text NOT NULL,           -- its version
    schema_version bigint NOT NULL,         -- that it was built for
    partitions     integer[] NOT NULL,      -- that it reads
    started_at     timestamptz NOT NULL,
    seen_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, member)
);

-- The gap's version has neither come nor been refused nor held. An order that is being drained has no gap.
CREATE OR REPLACE VIEW gaps AS
SELECT r.order_id, r.version + 1 AS from_version, p.first_version - 1 AS to_version, p.events AS parked_events, p.since AS waiting_since,
       coalesce(o.due_at, p.since + d.gap) AS due_at, coalesce(o.due_at, p.since + d.gap) < now() AS overdue, o.owner, r.version, r.state
FROM order_rows r
CROSS JOIN operator_deadlines d
CROSS JOIN LATERAL (
    SELECT min(version) AS first_version, min(parked_at) AS since, count(*) AS events FROM parked_events p WHERE p.order_id = r.order_id
) AS p
LEFT JOIN gap_owners o ON o.order_id = r.order_id AND o.version = r.version + 1
WHERE r.projection_status = 'waiting' AND p.first_version > r.version + 1
  AND NOT EXISTS (SELECT FROM held_records h WHERE h.projected AND h.order_id = r.order_id);

-- What a row does not say of its order: a record is held, or is the letter of a held one.
-- +goose StatementBegin
CREATE FUNCTION order_blocked_beside(asked text, next_version bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM held_records WHERE order_id = asked AND projected)
        OR EXISTS (SELECT FROM dead_letters WHERE order_id = asked AND version = next_version AND was_held AND blocks AND status IN ('open', 'exhausted'))
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION order_held_since(held text, held_status text, held_version bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE held_status
        WHEN 'waiting' THEN (SELECT min(parked_at) FROM parked_events WHERE order_id = held)
        WHEN 'blocked' THEN least((SELECT min(first_failed_at) FROM dead_letters
                             WHERE order_id = held AND version = held_version AND blocks AND status IN ('open', 'exhausted')),
                            (SELECT min(held_at) FROM held_records WHERE order_id = held AND projected))
    END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION order_overdue(held text, held_status text, held_version bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(CASE held_status
        WHEN 'waiting' THEN (SELECT overdue FROM gaps WHERE order_id = held)
        WHEN 'blocked' THEN (SELECT bool_or(coalesce(l.due_at, l.first_failed_at + d.letter) < now()) FROM dead_letters l, operator_deadlines d
                             WHERE l.order_id = held AND l.version = held_version AND l.blocks AND l.status IN ('open', 'exhausted'))
                            IS TRUE
                         OR EXISTS (SELECT FROM held_records h, operator_deadlines d
                                    WHERE h.order_id = held AND h.projected AND h.held_at + d.held_record < now())
    END, false)
$$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW orders AS
SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, projected_at, last_event_id, s.projection_status,
       CASE WHEN s.projection_status <> 'ok' THEN version + 1 END AS waiting_for_version,
       kafka_topic, kafka_partition, kafka_offset,
       CASE WHEN s.projection_status <> 'ok' THEN order_held_since(order_id, s.projection_status, version + 1) END AS waiting_since,
       CASE WHEN s.projection_status <> 'ok' THEN order_overdue(order_id, s.projection_status, version + 1) ELSE false END AS overdue
FROM order_rows r
CROSS JOIN LATERAL (
    SELECT CASE WHEN EXISTS (SELECT FROM held_records h WHERE h.order_id = r.order_id AND h.projected)
                  OR EXISTS (SELECT FROM dead_letters l WHERE l.order_id = r.order_id AND l.version = r.version + 1
                             AND l.was_held AND l.blocks AND l.status IN ('open', 'exhausted'))
           THEN 'blocked' ELSE r.projection_status END AS projection_status
) AS s
WHERE version > 0;

-- Also orders without a row, or with a row that says nothing of them: every record of theirs is held, or is the letter of a held one.
-- Both parts go by small indexes: order_rows_stuck, and those of held records and their letters.
CREATE OR REPLACE VIEW waiting_orders AS
SELECT order_id, projection_status, 1::bigint AS waiting_for_version, projected_at,
       order_held_since(order_id, projection_status, 1) AS waiting_since,
       order_overdue(order_id, projection_status, 1) AS overdue
FROM (
    SELECT order_id, CASE WHEN order_blocked_beside(order_id, 1) THEN 'blocked' ELSE projection_status END AS projection_status, projected_at
    FROM order_rows WHERE version = 0 AND projection_status <> 'ok'
    UNION ALL
    SELECT order_id, 'blocked', max(failed_at) FROM (
        SELECT order_id, failed_at FROM held_records WHERE projected AND order_id <> ''
        UNION ALL
        SELECT order_id, last_failed_at FROM dead_letters
        WHERE was_held AND blocks AND status IN ('open', 'exhausted') AND version = 1
    ) AS beside
    WHERE NOT EXISTS (SELECT FROM order_rows r WHERE r.order_id = beside.order_id AND (r.version > 0 OR r.projection_status <> 'ok'))
    GROUP BY order_id
) AS w;

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM held_records WHERE projected) THEN
        RAISE EXCEPTION 'records of the projection are held'
            USING HINT = 'end their causes, or make them dead letters (orderprojector held list), before you take the schema back';
    END IF;
END
$$;
-- +goose StatementEnd
DROP VIEW waiting_orders;
DROP VIEW orders;
CREATE OR REPLACE VIEW gaps AS
SELECT r.order_id, r.version + 1 AS from_version, p.first_version - 1 AS to_version, p.events AS parked_events, p.since AS waiting_since,
       coalesce(o.due_at, p.since + d.gap) AS due_at, coalesce(o.due_at, p.since + d.gap) < now() AS overdue, o.owner, r.version, r.state
FROM order_rows r
CROSS JOIN operator_deadlines d
CROSS JOIN LATERAL (
    SELECT min(version) AS first_version, min(parked_at) AS since, count(*) AS events FROM parked_events p WHERE p.order_id = r.order_id
) AS p
LEFT JOIN gap_owners o ON o.order_id = r.order_id AND o.version = r.version + 1
WHERE r.projection_status = 'waiting' AND p.since IS NOT NULL;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION order_held_since(held text, held_status text, held_version bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE held_status
        WHEN 'waiting' THEN (SELECT min(parked_at) FROM parked_events WHERE order_id = held)
        WHEN 'blocked' THEN (SELECT min(first_failed_at) FROM dead_letters
                             WHERE order_id = held AND version = held_version AND blocks AND status IN ('open', 'exhausted'))
    END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION order_overdue(held text, held_status text, held_version bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(CASE held_status
        WHEN 'waiting' THEN (SELECT overdue FROM gaps WHERE order_id = held)
        WHEN 'blocked' THEN (SELECT bool_or(coalesce(l.due_at, l.first_failed_at + d.letter) < now()) FROM dead_letters l, operator_deadlines d
                             WHERE l.order_id = held AND l.version = held_version AND l.blocks AND l.status IN ('open', 'exhausted'))
    END, false)
$$;
-- +goose StatementEnd
DROP FUNCTION order_blocked_beside(text, bigint);
CREATE VIEW orders AS
SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
       kafka_topic, kafka_partition, kafka_offset,
       CASE WHEN projection_status <> 'ok' THEN order_held_since(order_id, projection_status, version + 1) END AS waiting_since,
       CASE WHEN projection_status <> 'ok' THEN order_overdue(order_id, projection_status, version + 1) ELSE false END AS overdue
FROM order_rows
WHERE version > 0;
CREATE VIEW waiting_orders AS
SELECT order_id, projection_status, waiting_for_version, projected_at,
       order_held_since(order_id, projection_status, version + 1) AS waiting_since,
       order_overdue(order_id, projection_status, version + 1) AS overdue
FROM order_rows
WHERE version = 0 AND projection_status <> 'ok';
DROP TABLE group_members;
ALTER TABLE operator_deadlines DROP COLUMN held_record;
UPDATE consumption_control SET breaker_opened_at = NULL, breaker_reason = NULL WHERE breaker_reason = 'held';
ALTER TABLE consumption_control DROP CONSTRAINT consumption_control_breaker_reason_check;
ALTER TABLE consumption_control ADD CONSTRAINT consumption_control_breaker_reason_check
    CHECK (breaker_reason IN ('invalid', 'conflict', 'illegal'));
ALTER TABLE held_records DROP COLUMN kafka_timestamp_ms;
ALTER TABLE dead_letters DROP COLUMN kafka_timestamp_ms;
ALTER TABLE parked_events DROP COLUMN kafka_timestamp_ms;
DROP INDEX dead_letters_was_held;
ALTER TABLE dead_letters DROP COLUMN was_held;
DROP INDEX held_records_projected;
DROP INDEX held_records_queue;
ALTER TABLE held_records
    DROP COLUMN projected, DROP COLUMN version, DROP COLUMN type, DROP COLUMN class, DROP COLUMN failed_at, DROP COLUMN retried_by,
    ADD COLUMN applied_then bigint NOT NULL DEFAULT 0;
ALTER TABLE held_records ALTER COLUMN applied_then DROP DEFAULT, ALTER COLUMN order_id TYPE text;
UPDATE projection_watermarks SET parked = parked + held;
ALTER TABLE projection_watermarks DROP COLUMN held;
DROP TABLE schema_requirement;
ALTER TYPE order_row_append RENAME TO order_append;
ALTER TYPE order_row_change RENAME TO order_change;
ALTER TABLE projection_watermarks RENAME COLUMN skipped_to TO skip_to;
ALTER TABLE projection_watermarks RENAME COLUMN skipped_from TO skip_from;
