-- Where records go that cannot be applied now: parked events wait for a
-- missing version, dead letters for an operator. Both keep the record byte for
-- byte, because the topic may forget it before it is decided again.

-- +goose Up
CREATE TABLE parked_events (
    order_id        text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    event_id        text NOT NULL,
    digest          bytea NOT NULL,
    type            text NOT NULL,
    occurred_at     timestamptz NOT NULL,
    consumer_group  text NOT NULL,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    kafka_timestamp timestamptz NOT NULL,
    key             bytea,
    value           bytea NOT NULL,
    headers         jsonb NOT NULL,
    parked_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, version, event_id, digest)
);
CREATE INDEX parked_events_age ON parked_events (parked_at);

CREATE TABLE dead_letters (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group  text NOT NULL,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    kafka_timestamp timestamptz NOT NULL,
    key             bytea,
    value           bytea,
    headers         jsonb NOT NULL,
    -- what could be read of the record: NULL where it could not
    order_id        text COLLATE "C",
    version         bigint,
    event_id        text,
    reason          text NOT NULL CHECK (reason IN ('invalid', 'conflict', 'unsupported', 'illegal')),
    detail          text NOT NULL,
    blocks          boolean NOT NULL, -- holds its order back when its version is the next one
    status          text NOT NULL DEFAULT 'open'
        CHECK (status IN ('open', 'redriven', 'superseded', 'discarded', 'exhausted')),
    attempts        integer NOT NULL DEFAULT 1,
    first_failed_at timestamptz NOT NULL DEFAULT now(),
    last_failed_at  timestamptz NOT NULL DEFAULT now(),
    closed_at       timestamptz,
    UNIQUE (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset)
);
CREATE INDEX dead_letters_blocking ON dead_letters (order_id, version) WHERE blocks AND status IN ('open', 'exhausted');
CREATE INDEX dead_letters_order ON dead_letters (order_id);
CREATE INDEX dead_letters_status ON dead_letters (status, reason, first_failed_at);

-- +goose Down
DROP TABLE dead_letters;
DROP TABLE parked_events;
