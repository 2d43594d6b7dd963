-- Per partition: everything below next_offset is durable in this database.
-- The row is locked by each batch's transaction before anything is decided. It is the
-- fence against late writers, and against a database that lost commits.

-- +goose Up
CREATE TABLE projection_watermarks (
    consumer_group  text NOT NULL,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL, -- a recreated topic is another log
    kafka_partition integer NOT NULL,
    next_offset     bigint NOT NULL CHECK (next_offset >= 0),
    generation      bigint NOT NULL DEFAULT 1, -- raised when the projected tables are exchanged
    applied         bigint NOT NULL DEFAULT 0,
    duplicate       bigint NOT NULL DEFAULT 0,
    stale           bigint NOT NULL DEFAULT 0,
    conflict        bigint NOT NULL DEFAULT 0,
    parked          bigint NOT NULL DEFAULT 0,
    invalid         bigint NOT NULL DEFAULT 0,
    unsupported     bigint NOT NULL DEFAULT 0,
    illegal         bigint NOT NULL DEFAULT 0,
    ignored         bigint NOT NULL DEFAULT 0,
    lost_offsets    bigint NOT NULL DEFAULT 0, -- passed by --on-data-loss=continue
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, kafka_topic, topic_id, kafka_partition)
);

-- +goose Down
DROP TABLE projection_watermarks;
