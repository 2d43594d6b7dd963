-- What operators decide and do. Decisions are data: they stand outside of the
-- tables that are rebuilt, and are an input of every fold of an order. Whatever an
-- operator does is one row in audit_log, written in the transaction that does it.

-- +goose Up
CREATE TABLE audit_log (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text NOT NULL CHECK (actor <> ''),
    action  text NOT NULL,               -- the command: dlq.discard
    target  text NOT NULL,               -- what it was done to: dead_letter 17
    comment text NOT NULL DEFAULT '',
    before  jsonb,
    after   jsonb
);
CREATE INDEX audit_log_at ON audit_log (at);
CREATE INDEX audit_log_target ON audit_log (target, id);

CREATE TABLE operator_decisions (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id        text COLLATE "C" NOT NULL,
    -- skip and accept_gap pass versions without an event; substitute replaces
    -- the bytes of one record, which are known by their digest
    kind            text NOT NULL CHECK (kind IN ('skip', 'accept_gap', 'substitute')),
    from_version    bigint NOT NULL CHECK (from_version >= 1),
    to_version      bigint NOT NULL,
    -- the letter that gave rise to it, and its record; the letter may be purged
    letter_id       bigint,
    kafka_topic     text,
    topic_id        uuid,
    kafka_partition integer,
    kafka_offset    bigint,
    digest          bytea,
    substitute      bytea,
    -- the record names neither its order nor its version, so that only its coordinates
    -- tell it from another one with the same bytes
    by_coordinates  boolean NOT NULL DEFAULT false,
    actor           text NOT NULL,
    comment         text NOT NULL,
    decided_at      timestamptz NOT NULL DEFAULT now(),
    undone_at       timestamptz,
    undone_by       text,
    undone_comment  text,
    -- a bounded range: each version of it becomes a ledger entry
    CHECK (to_version - from_version BETWEEN 0 AND 9999),
    CHECK ((kind = 'substitute') = (substitute IS NOT NULL)),
    CHECK (kind <> 'substitute' OR (digest IS NOT NULL AND from_version = to_version AND kafka_topic IS NOT NULL
           AND topic_id IS NOT NULL AND kafka_partition IS NOT NULL AND kafka_offset IS NOT NULL)),
    CHECK ((undone_at IS NULL) = (undone_by IS NULL))
);
CREATE INDEX operator_decisions_order ON operator_decisions (order_id) WHERE undone_at IS NULL;
CREATE INDEX operator_decisions_coordinates ON operator_decisions (kafka_topic, kafka_partition, kafka_offset)
    WHERE undone_at IS NULL AND by_coordinates;

-- A decided order is never decided on memory alone: its decisions are read with its locked row.
ALTER TABLE order_rows ADD COLUMN decided boolean NOT NULL DEFAULT false;

ALTER TABLE dead_letters
    ADD COLUMN type           text,          -- the event's type, where it could be read
    ADD COLUMN owner          text,
    ADD COLUMN due_at         timestamptz,   -- NULL: the deadline for all
    ADD COLUMN closed_by      text,
    ADD COLUMN closed_comment text;
-- The order in which letters are worked off: an order's letters one after another, by version.
CREATE INDEX dead_letters_turns ON dead_letters (coalesce(order_id, ''), coalesce(version, 0), id);

-- A redrive: its selection, frozen when it began, and how far it has come, so
-- that it can be interrupted and continued.
CREATE TABLE redrive_jobs (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group text NOT NULL,
    selection      jsonb NOT NULL,
    newest_letter  bigint NOT NULL,          -- letters that came later are not part of it
    cursor_order   text COLLATE "C" NOT NULL DEFAULT '',
    cursor_version bigint NOT NULL DEFAULT -1,
    cursor_letter  bigint NOT NULL DEFAULT 0,
    status         text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'stopped', 'done')),
    letters        bigint NOT NULL DEFAULT 0, -- tried so far
    redriven       bigint NOT NULL DEFAULT 0,
    refused        bigint NOT NULL DEFAULT 0,
    actor          text NOT NULL,
    comment        text NOT NULL DEFAULT '',
    started_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now()
);

-- Deadlines for all: one row, the same for the views, the metrics and every command.
CREATE TABLE operator_deadlines (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    gap      interval NOT NULL DEFAULT '15 minutes', -- after the first event was parked behind it
    letter   interval NOT NULL DEFAULT '24 hours'    -- after the record failed first
);
INSERT INTO operator_deadlines DEFAULT VALUES;

-- Who takes care of a gap. Void once the order waits for another version.
CREATE TABLE gap_owners (
    order_id    text COLLATE "C" PRIMARY KEY,
    version     bigint NOT NULL,             -- the one that the order waited for
    owner       text,
    due_at      timestamptz,                 -- NULL: the deadline for all
    assigned_at timestamptz NOT NULL DEFAULT now()
);

-- A skip of offsets that members are to follow although Kafka still has the
-- older commit: a committed offset in skip_from..skip_to is taken as skip_to.
ALTER TABLE projection_watermarks
    ADD COLUMN skip_from bigint,
    ADD COLUMN skip_to   bigint;

-- Orders that wait for a version that has neither come nor been refused.
CREATE VIEW gaps AS
SELECT r.order_id, r.version + 1 AS from_version, p.first_version - 1 AS to_version, p.events AS parked_events, p.since AS waiting_since,
       coalesce(o.due_at, p.since + d.gap) AS due_at, coalesce(o.due_at, p.since + d.gap) < now() AS overdue, o.owner, r.version, r.state
FROM order_rows r
CROSS JOIN operator_deadlines d
CROSS JOIN LATERAL (
    SELECT min(version) AS first_version, min(parked_at) AS since, count(*) AS events FROM parked_events p WHERE p.order_id = r.order_id
) AS p
LEFT JOIN gap_owners o ON o.order_id = r.order_id AND o.version = r.version + 1
WHERE r.projection_status = 'waiting' AND p.since IS NOT NULL;

-- The views say since when an order is held up, and whether that is for too long.
-- +goose StatementBegin
CREATE FUNCTION order_held_since(held text, held_status text, held_version bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE held_status
        WHEN 'waiting' THEN (SELECT min(parked_at) FROM parked_events WHERE order_id = held)
        WHEN 'blocked' THEN (SELECT min(first_failed_at) FROM dead_letters
                             WHERE order_id = held AND version = held_version AND blocks AND status IN ('open', 'exhausted'))
    END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION order_overdue(held text, held_status text, held_version bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(CASE held_status
        WHEN 'waiting' THEN (SELECT overdue FROM gaps WHERE order_id = held)
        WHEN 'blocked' THEN (SELECT bool_or(coalesce(l.due_at, l.first_failed_at + d.letter) < now()) FROM dead_letters l, operator_deadlines d
                             WHERE l.order_id = held AND l.version = held_version AND l.blocks AND l.status IN ('open', 'exhausted'))
    END, false)
$$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW orders AS
SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
       kafka_topic, kafka_partition, kafka_offset,
       CASE WHEN projection_status <> 'ok' THEN order_held_since(order_id, projection_status, version + 1) END AS waiting_since,
       CASE WHEN projection_status <> 'ok' THEN order_overdue(order_id, projection_status, version + 1) ELSE false END AS overdue
FROM order_rows
WHERE version > 0;

CREATE OR REPLACE VIEW waiting_orders AS
SELECT order_id, projection_status, waiting_for_version, projected_at,
       order_held_since(order_id, projection_status, version + 1) AS waiting_since,
       order_overdue(order_id, projection_status, version + 1) AS overdue
FROM order_rows
WHERE version = 0 AND projection_status <> 'ok';

-- +goose Down
DROP VIEW waiting_orders;
DROP VIEW orders;
CREATE VIEW orders AS
SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
       kafka_topic, kafka_partition, kafka_offset
FROM order_rows
WHERE version > 0;
CREATE VIEW waiting_orders AS
SELECT order_id, projection_status, waiting_for_version, projected_at
FROM order_rows
WHERE version = 0 AND projection_status <> 'ok';
DROP FUNCTION order_overdue(text, text, bigint);
DROP FUNCTION order_held_since(text, text, bigint);
DROP VIEW gaps;
ALTER TABLE projection_watermarks DROP COLUMN skip_from, DROP COLUMN skip_to;
DROP TABLE gap_owners;
DROP TABLE operator_deadlines;
DROP TABLE redrive_jobs;
DROP INDEX dead_letters_turns;
ALTER TABLE dead_letters DROP COLUMN type, DROP COLUMN owner, DROP COLUMN due_at, DROP COLUMN closed_by, DROP COLUMN closed_comment;
ALTER TABLE order_rows DROP COLUMN decided;
DROP TABLE operator_decisions;
DROP TABLE audit_log;
