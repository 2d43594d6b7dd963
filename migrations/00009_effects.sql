-- Consumers beside the projection: points and notifications. Each has a consumer group of its own, and notes the
-- events that it has dealt with in the transaction that deals with them.

-- +goose Up

-- Whose a consumer group is. Two consumers in one group would each take the other's progress for its own.
CREATE TABLE consumer_claims (
    consumer_group text PRIMARY KEY,
    consumer       text NOT NULL
);

CREATE TABLE consumed_events (
    consumer        text NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,
    order_id        text COLLATE "C" NOT NULL,
    -- duplicate: another event had the same effect before; suppressed: read again on purpose, without effect
    effect          text NOT NULL CHECK (effect IN ('applied', 'duplicate', 'suppressed')),
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    consumed_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX consumed_events_order ON consumed_events (order_id);

-- Records whose effect failed for a reason of their own. They are tried again while others go on.
CREATE TABLE held_records (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group  text NOT NULL,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    kafka_timestamp timestamptz NOT NULL,
    kafka_timestamp_type smallint NOT NULL,
    key             bytea,
    value           bytea,
    headers         jsonb NOT NULL,
    order_id        text NOT NULL,
    event_id        text NOT NULL,
    failures        integer NOT NULL DEFAULT 1,
    -- those while others succeeded: an outage is not poison
    counted         integer NOT NULL DEFAULT 1,
    applied_then    bigint NOT NULL, -- by the group, when it failed last
    cause           text NOT NULL,
    held_at         timestamptz NOT NULL DEFAULT now(),
    due_at          timestamptz NOT NULL DEFAULT now(),
    UNIQUE (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset)
);
CREATE INDEX held_records_due ON held_records (consumer_group, due_at);

-- Who may own an order's points. The row is what transactions lock that add to the order's entries.
CREATE TABLE points_accounts (
    order_id          text COLLATE "C" PRIMARY KEY,
    ordered_customer  text, -- named by OrderCreated
    paid_customer     text, -- named by a payment: that of the lowest source that names one
    paid_source       text,
    refunded_customer text, -- named by a refund
    refunded_source   text
);

-- One entry per payment and refund, whatever the number of events that tell of it.
CREATE TABLE points_ledger (
    source          text COLLATE "C" PRIMARY KEY, -- payment:ID or refund:ID
    customer_id     text COLLATE "C",             -- NULL until it is known
    order_id        text COLLATE "C" NOT NULL,
    delta           bigint NOT NULL,              -- points: what this entry changed
    kind            text NOT NULL CHECK (kind IN ('payment', 'refund')),
    amount_minor    bigint NOT NULL CHECK (amount_minor >= 0),
    currency        text NOT NULL,
    event_id        text NOT NULL,
    occurred_at     timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL
);
CREATE INDEX points_ledger_order ON points_ledger (order_id);
CREATE INDEX points_ledger_customer ON points_ledger (customer_id, recorded_at);
CREATE INDEX points_ledger_unowned ON points_ledger (recorded_at) WHERE customer_id IS NULL;

CREATE TABLE notifications (
    event_id        text COLLATE "C" PRIMARY KEY,
    order_id        text COLLATE "C" NOT NULL,
    idempotency_key text NOT NULL,               -- the same for every attempt
    body            text NOT NULL,               -- as it is sent and signed, the same for every attempt
    state           text NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'unknown', 'suppressed', 'cancelled')),
    attempts        integer NOT NULL DEFAULT 0,  -- calls of the receiver that were begun
    failures        integer NOT NULL DEFAULT 0,  -- of them, failures that count: while others were sent
    claims          bigint NOT NULL DEFAULT 0,   -- raised by each claim: a late finisher's guard fails
    claimed_by      text,
    -- when a worker may claim it; for a claimed one, when its claim ends; infinity for what waits for an operator
    due_at          timestamptz NOT NULL DEFAULT now(),
    last_status     integer,                     -- HTTP status of the latest answer
    last_error      text,
    failed_at       timestamptz,                 -- latest failure
    sent_at         timestamptz,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX notifications_order ON notifications (order_id);
CREATE INDEX notifications_due ON notifications (due_at) WHERE state IN ('pending', 'sending', 'unknown');
CREATE INDEX notifications_sent ON notifications (sent_at) WHERE state = 'sent';
CREATE INDEX notifications_state ON notifications (state, created_at);

-- +goose Down
DROP TABLE notifications;
DROP TABLE points_ledger;
DROP TABLE points_accounts;
DROP TABLE held_records;
DROP TABLE consumed_events;
DROP TABLE consumer_claims;
