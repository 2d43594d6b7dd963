-- Whether a group may consume is stored, so that a pause, or the breaker that a bad
-- deployment opened, outlives restarts and is the same for all members.
-- The breaker judges the events of the last minutes. What it needs for that is
-- written with a batch only when something of it was refused; the number of all events
-- comes from the watermarks, which count anyway, and is noted now and again by whoever
-- follows the state, so that it can be told how many there were since.

-- +goose Up
CREATE TABLE consumption_control (
    consumer_group    text PRIMARY KEY,
    paused_at         timestamptz, -- NULL: not paused by an operator
    paused_by         text,
    pause_comment     text,
    breaker_opened_at timestamptz, -- NULL: closed
    breaker_reason    text CHECK (breaker_reason IN ('invalid', 'conflict', 'illegal')),
    breaker_letters   bigint,      -- of that reason, in its window, when it opened,
    breaker_orders    bigint,      -- of at least so many orders,
    breaker_events    bigint,      -- among so many events
    CHECK ((paused_at IS NULL) = (paused_by IS NULL)),
    CHECK ((breaker_opened_at IS NULL) = (breaker_reason IS NULL))
);

-- Refused events by time. The partition is part of the key because batches of different
-- partitions must not wait for each other here.
CREATE TABLE breaker_letters (
    consumer_group  text NOT NULL,
    bucket          timestamptz NOT NULL, -- start of ten seconds
    kafka_partition integer NOT NULL,
    reason          text NOT NULL,
    letters         bigint NOT NULL,
    orders          bigint[] NOT NULL,    -- hashes of some of their orders, enough to know that there are many
    PRIMARY KEY (consumer_group, bucket, kafka_partition, reason)
);

CREATE TABLE breaker_events (
    consumer_group text NOT NULL,
    noted_at       timestamptz NOT NULL,
    events         bigint NOT NULL,       -- counted in the group's watermarks by then
    PRIMARY KEY (consumer_group, noted_at)
);

-- +goose Down
DROP TABLE breaker_events;
DROP TABLE breaker_letters;
DROP TABLE consumption_control;
