-- The order service's own tables. The outbox is another package's.
SELECT pg_advisory_xact_lock(hashtextextended('orderservice schema', 0));

CREATE SCHEMA IF NOT EXISTS orderservice;

CREATE TABLE IF NOT EXISTS orderservice.orders (
    order_id       text COLLATE "C" PRIMARY KEY,
    version        bigint NOT NULL CHECK (version >= 1), -- of the order: one more with each event
    state          text NOT NULL,
    customer_id    text NOT NULL,
    currency       text NOT NULL,
    total_minor    bigint NOT NULL CHECK (total_minor >= 0),
    paid_minor     bigint NOT NULL CHECK (paid_minor >= 0),
    refunded_minor bigint NOT NULL CHECK (refunded_minor BETWEEN 0 AND paid_minor),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

-- Commands that were carried out and named a key, so that a repetition is known.
CREATE TABLE IF NOT EXISTS orderservice.commands (
    idempotency_key text PRIMARY KEY,
    command         json NOT NULL,   -- as it was given
    order_id        text COLLATE "C" NOT NULL,
    version         bigint NOT NULL, -- what it made of the order
    event_id        text NOT NULL,
    carried_out_at  timestamptz NOT NULL
);
