-- Every dead letter is copied to a topic, for Kafka's tools. A row here says
-- which lap of a letter (its attempts) is to be copied and which one is, so what is due is
-- found by existence: a cursor over letter IDs would skip letters whose transactions
-- commit late. The rows are beside the letters, not columns of them, so that the publisher's
-- bookkeeping neither rewrites records nor waits for an operator's locks.
-- A trigger writes them, so that nothing that adds a letter, or a lap, can forget the copy.

-- +goose Up
-- Kafka's own numbers: 0 the producer's time (CreateTime), 1 the broker's (LogAppendTime).
ALTER TABLE parked_events ADD COLUMN kafka_timestamp_type smallint NOT NULL DEFAULT 0 CHECK (kafka_timestamp_type IN (0, 1));
ALTER TABLE dead_letters ADD COLUMN kafka_timestamp_type smallint NOT NULL DEFAULT 0 CHECK (kafka_timestamp_type IN (0, 1));

CREATE TABLE letter_copies (
    letter_id       bigint PRIMARY KEY REFERENCES dead_letters ON DELETE CASCADE,
    consumer_group  text NOT NULL,
    bytes           bigint NOT NULL,             -- of the record, so that what is read at once can be bounded
    attempts        integer NOT NULL,            -- the lap to be copied
    copied_attempts integer NOT NULL DEFAULT 0,  -- the newest lap that is dealt with
    wanted_at       timestamptz NOT NULL DEFAULT now(),
    due_at          timestamptz NOT NULL DEFAULT now(), -- later after a failure
    failures        integer NOT NULL DEFAULT 0,  -- of this lap
    failure         text,                        -- the last one's cause
    -- how the newest lap was dealt with: as it is, without its value because
    -- that is too large for the topic, or not at all because even then it is
    form            text CHECK (form IN ('whole', 'without_value', 'none')),
    copied_at       timestamptz,
    kafka_topic     text,                        -- where the copy is
    kafka_partition integer,
    kafka_offset    bigint
);
CREATE INDEX letter_copies_due ON letter_copies (consumer_group, due_at, letter_id) WHERE copied_attempts < attempts;

-- +goose StatementBegin
CREATE FUNCTION letter_copies_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO letter_copies (letter_id, consumer_group, bytes, attempts)
    SELECT id, consumer_group, coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + octet_length(headers::text), attempts
    FROM added;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER letter_copies_add AFTER INSERT ON dead_letters
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION letter_copies_add();

-- +goose StatementBegin
CREATE FUNCTION letter_copies_lap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE letter_copies
    SET attempts = NEW.attempts, wanted_at = now(), due_at = now(), failures = 0, failure = NULL
    WHERE letter_id = NEW.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER letter_copies_lap AFTER UPDATE OF attempts ON dead_letters
    FOR EACH ROW WHEN (NEW.attempts > OLD.attempts) EXECUTE FUNCTION letter_copies_lap();

INSERT INTO letter_copies (letter_id, consumer_group, bytes, attempts)
SELECT id, consumer_group, coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + octet_length(headers::text), attempts
FROM dead_letters;

-- +goose Down
DROP TRIGGER letter_copies_lap ON dead_letters;
DROP TRIGGER letter_copies_add ON dead_letters;
DROP FUNCTION letter_copies_lap();
DROP FUNCTION letter_copies_add();
DROP TABLE letter_copies;
ALTER TABLE dead_letters DROP COLUMN kafka_timestamp_type;
ALTER TABLE parked_events DROP COLUMN kafka_timestamp_type;
