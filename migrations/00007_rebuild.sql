-- A rebuild projects the topic again into tables of a schema of its own, beside the live
-- ones, and exchanges them. What is stored here says how each stands, to people and to
-- the next one, which cleans up after one that died.

-- +goose Up
CREATE TABLE rebuilds (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind              text NOT NULL CHECK (kind IN ('rebuild', 'rollback')),
    consumer_group    text NOT NULL,
    kafka_topic       text NOT NULL,
    topic_id          uuid NOT NULL,
    -- filling and comparing end in one of the others: compared was a dry run, in differs
    -- the difference was too large
    status            text NOT NULL CHECK (status IN ('filling', 'comparing', 'swapped', 'compared', 'differs', 'aborted', 'failed', 'rolled_back')),
    dry_run           boolean NOT NULL DEFAULT false,
    max_differences   bigint NOT NULL,
    records           bigint NOT NULL DEFAULT 0, -- offsets passed
    total             bigint NOT NULL DEFAULT 0, -- offsets to pass, as known so far
    differing_orders  bigint,                    -- NULL: not compared yet
    differing_letters bigint,                    -- of orders that do not differ otherwise, or of none
    generation        bigint,                    -- of the watermarks since the exchange
    schema_version    bigint NOT NULL,           -- the tables are of this version
    actor             text NOT NULL,
    comment           text NOT NULL,
    abort_actor       text,                      -- somebody asks it to stop
    abort_comment     text,
    failure           text,
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz,
    CHECK ((finished_at IS NULL) = (status IN ('filling', 'comparing')))
);

-- The coordinates of discarded letters that were purged: a rebuild folds their records again,
-- and is not to put them before anybody a second time. A trigger writes them, so that nothing that
-- deletes letters can forget it.
CREATE TABLE purged_letters (
    consumer_group  text NOT NULL,
    kafka_topic     text NOT NULL,
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    PRIMARY KEY (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset)
);

-- +goose StatementBegin
CREATE FUNCTION purged_letters_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO purged_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset)
    SELECT consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset FROM removed WHERE status = 'discarded'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER purged_letters_add AFTER DELETE ON dead_letters
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION purged_letters_add();

-- +goose Down
DROP TRIGGER purged_letters_add ON dead_letters;
DROP FUNCTION purged_letters_add();
DROP TABLE purged_letters;
DROP TABLE rebuilds;
