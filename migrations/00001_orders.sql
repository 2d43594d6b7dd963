-- The projected orders. One row holds an order's state and, beside it, the
-- proof of how it came about: parallel arrays with one element per applied
-- event. State and ledger are one atomic write, and a duplicate is told from a
-- conflict without another table.
-- `order_id` is part of every unique key here, so that the tables can be
-- hash-partitioned by it, and is compared bytewise, so that sorting keys in Go
-- and in PostgreSQL agrees (locks are taken in that order).

-- +goose Up
CREATE TABLE order_rows (
    order_id            text COLLATE "C" PRIMARY KEY,
    version             bigint NOT NULL CHECK (version >= 0),
    -- raised by every write other than an append, so that an append decided on
    -- an older reading touches no row
    revision            bigint NOT NULL DEFAULT 0,
    customer_id         text NOT NULL,
    state               text NOT NULL,
    currency            text NOT NULL,
    total_minor         bigint NOT NULL CHECK (total_minor >= 0),
    paid_minor          bigint NOT NULL CHECK (paid_minor >= 0),
    refunded_minor      bigint NOT NULL CHECK (refunded_minor >= 0 AND refunded_minor <= paid_minor),
    created_at          timestamptz,               -- time of the first event
    updated_at          timestamptz,               -- time of the last event
    projected_at        timestamptz NOT NULL,      -- wall clock of the last write
    last_event_id       text NOT NULL,
    projection_status   text NOT NULL CHECK (projection_status IN ('ok', 'waiting', 'blocked')),
    waiting_for_version bigint,
    kafka_topic         text NOT NULL,
    kafka_partition     integer NOT NULL,
    kafka_offset        bigint NOT NULL,
    archived            bigint NOT NULL DEFAULT 0, -- entries moved to order_ledger_archive
    ledger_versions     bigint[] NOT NULL,
    ledger_event_ids    text[] NOT NULL,           -- '' for a skipped version
    ledger_types        text[] NOT NULL,
    ledger_states       text[] NOT NULL,
    ledger_times        timestamptz[] NOT NULL,
    ledger_digests      bytea[] NOT NULL,
    ledger_partitions   integer[] NOT NULL,
    ledger_offsets      bigint[] NOT NULL,
    CHECK ((projection_status = 'ok') = (waiting_for_version IS NULL))
) WITH (fillfactor = 70);

CREATE INDEX order_rows_stuck ON order_rows (order_id) WHERE projection_status <> 'ok';

-- Entries beyond the newest 64 of an order, so that a hot order's row, and
-- with it the cost of its next event, stays small.
CREATE TABLE order_ledger_archive (
    order_id        text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    event_id        text,
    type            text NOT NULL,
    state           text NOT NULL,
    occurred_at     timestamptz,
    digest          bytea,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    PRIMARY KEY (order_id, version),
    UNIQUE (order_id, event_id)
);

-- A batch reaches its statement as one array of these: one change of one row,
-- with the new ledger entries as arrays of their own, which unnest over parallel
-- arrays cannot carry (they would have to be of one length).
CREATE TYPE order_change AS (
    order_id            text COLLATE "C",
    base_version        bigint,                -- the guard
    base_revision       bigint,
    version             bigint,
    revision            bigint,
    customer_id         text,
    state               text,
    currency            text,
    total_minor         bigint,
    paid_minor          bigint,
    refunded_minor      bigint,
    created_at          timestamptz,
    updated_at          timestamptz,
    last_event_id       text,
    projection_status   text,
    waiting_for_version bigint,
    kafka_topic         text,
    kafka_partition     integer,
    kafka_offset        bigint,
    archive             integer,               -- how many of the oldest entries leave the row
    versions            bigint[],
    event_ids           text[],
    types               text[],
    states              text[],
    times               timestamptz[],
    digests             bytea[],
    partitions          integer[],
    offsets             bigint[]
);

-- The change of a row in the common case: one event more.
CREATE TYPE order_append AS (
    order_id        text COLLATE "C",
    base_version    bigint,                    -- the guard
    base_revision   bigint,
    state           text,
    total_minor     bigint,
    paid_minor      bigint,
    refunded_minor  bigint,
    event_id        text,
    type            text,
    occurred_at     timestamptz,
    digest          bytea,
    kafka_topic     text,
    kafka_partition integer,
    kafka_offset    bigint
);

CREATE VIEW orders AS
SELECT order_id, customer_id, state, version, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
       kafka_topic, kafka_partition, kafka_offset
FROM order_rows
WHERE version > 0;

-- Orders of which nothing is applied yet: their first events are missing or were refused.
CREATE VIEW waiting_orders AS
SELECT order_id, projection_status, waiting_for_version, projected_at
FROM order_rows
WHERE version = 0 AND projection_status <> 'ok';

CREATE VIEW order_events AS
SELECT r.order_id, e.version, nullif(e.event_id, '') AS event_id, e.type, e.occurred_at, e.digest, e.state,
       e.kafka_partition, e.kafka_offset
FROM order_rows r
CROSS JOIN LATERAL unnest(r.ledger_versions, r.ledger_event_ids, r.ledger_types, r.ledger_times, r.ledger_digests,
                          r.ledger_states, r.ledger_partitions, r.ledger_offsets)
    AS e (version, event_id, type, occurred_at, digest, state, kafka_partition, kafka_offset)
UNION ALL
SELECT order_id, version, event_id, type, occurred_at, digest, state, kafka_partition, kafka_offset
FROM order_ledger_archive;

-- +goose Down
DROP VIEW order_events;
DROP VIEW waiting_orders;
DROP VIEW orders;
DROP TYPE order_append;
DROP TYPE order_change;
DROP TABLE order_ledger_archive;
DROP TABLE order_rows;
