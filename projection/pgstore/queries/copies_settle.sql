UPDATE letter_copies c
SET copied_attempts = greatest(c.copied_attempts, e.attempts), copied_at = now(), form = e.form, failure = nullif(e.reason, ''),
    kafka_topic = nullif(e.topic, ''), kafka_partition = CASE WHEN e.topic <> '' THEN e.partition END,
    kafka_offset = CASE WHEN e.topic <> '' THEN e."offset" END
FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::bigint[])
    AS e (letter_id, attempts, form, reason, topic, partition, "offset")
WHERE c.letter_id = e.letter_id
