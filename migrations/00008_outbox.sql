-- Messages that an order service wants published, written in the transaction
-- of the change that they tell of. A row that exists is unpublished: the relay deletes it once the
-- broker has acknowledged it, so there is no cursor that a late commit could fall behind,
-- and nothing is ever updated. What is known of a message's failures is kept beside it.
-- Package outbox runs the same statements in databases that orderprojector does not
-- migrate, so each of them may find its work done already.

-- +goose Up
-- Two sessions that create the same table at once would fail.
SELECT pg_advisory_xact_lock(hashtextextended('orderprojector outbox schema', 0));

-- The columns that Debezium's outbox event router reads have the names that it expects.
CREATE TABLE IF NOT EXISTS outbox (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 200),    -- the event ID
    aggregatetype text NOT NULL DEFAULT 'order' CHECK (aggregatetype = 'order'),
    aggregateid   text COLLATE "C" NOT NULL CHECK (octet_length(aggregateid) BETWEEN 1 AND 200), -- the order ID
    type          text NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 200),
    payload       json NOT NULL,                                               -- the whole envelope, byte for byte
    -- the order's version, which decides what is published first
    version       bigint NOT NULL GENERATED ALWAYS AS ((payload ->> 'version')::bigint) STORED CHECK (version >= 1),
    traceparent   text,                                                        -- W3C trace context, or NULL
    tracestate    text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (aggregateid, version)
);
-- Rows come and go: what is left behind is cleaned up by their number, not by their share.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Messages that were refused for good. A blocked one holds its order back.
CREATE TABLE IF NOT EXISTS outbox_failures (
    seq             bigint PRIMARY KEY,          -- of the message
    aggregateid     text COLLATE "C" NOT NULL,
    reason          text NOT NULL CHECK (reason IN ('too_large', 'invalid', 'refused')),
    detail          text NOT NULL,
    status          text NOT NULL DEFAULT 'blocked' CHECK (status IN ('blocked', 'retrying')),
    attempts        integer NOT NULL DEFAULT 1,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_failed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    retried_at      timestamptz,
    retried_by      text,
    retried_comment text
);
CREATE INDEX IF NOT EXISTS outbox_failures_blocked ON outbox_failures (aggregateid) WHERE status = 'blocked';

-- Messages that an operator gave up. Nothing of them is lost.
CREATE TABLE IF NOT EXISTS outbox_discarded (
    seq               bigint NOT NULL,
    id                text NOT NULL,
    aggregatetype     text NOT NULL,
    aggregateid       text COLLATE "C" NOT NULL,
    type              text NOT NULL,
    payload           json NOT NULL,
    version           bigint NOT NULL,
    traceparent       text,
    tracestate        text,
    created_at        timestamptz NOT NULL,
    reason            text NOT NULL,
    detail            text NOT NULL,
    attempts          integer NOT NULL,
    discarded_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    discarded_by      text NOT NULL,
    discarded_comment text NOT NULL,
    PRIMARY KEY (seq, discarded_at)              -- a restored sequence begins again
);

-- Wakes the relay. A trigger does it, so that messages written in other languages wake it, too.
-- Where the lock that NOTIFY takes at commit is too much, disable the trigger: the relay also looks by itself.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('orderprojector_outbox', '');
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER outbox_notify AFTER INSERT ON outbox
    FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM outbox) THEN
        RAISE EXCEPTION 'the outbox holds messages that are not published'
            USING HINT = 'let the relay publish them (orderprojector outbox status), or discard them first';
    END IF;
END
$$;
-- +goose StatementEnd
DROP TABLE outbox_discarded;
DROP TABLE outbox_failures;
DROP TABLE outbox;
DROP FUNCTION outbox_notify();
