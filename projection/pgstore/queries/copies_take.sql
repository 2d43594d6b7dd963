-- Like copies_due, and nobody else gets the letters for a while. Those that are neither settled nor postponed by then are due again.
WITH due AS (
    SELECT letter_id, sum(bytes) OVER (ORDER BY due_at, letter_id) - bytes AS before
    FROM (
        SELECT letter_id, bytes, due_at FROM letter_copies
        WHERE consumer_group = $1 AND copied_attempts < attempts AND due_at <= now()
        ORDER BY due_at, letter_id LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS first
), taken AS (
    UPDATE letter_copies c SET due_at = now() + $4::interval FROM due
    WHERE c.letter_id = due.letter_id AND due.before < $3
    RETURNING c.letter_id, c.failures
)
SELECT l.id, l.consumer_group, l.attempts, l.kafka_topic, l.topic_id, l.kafka_partition, l.kafka_offset,
       l.kafka_timestamp, l.kafka_timestamp_ms, l.kafka_timestamp_type = 1, l.key, l.value, l.headers,
       coalesce(l.order_id, ''), coalesce(l.event_id, ''), coalesce(l.version, 0), l.reason, l.detail,
       l.first_failed_at, l.last_failed_at, taken.failures
FROM taken
JOIN dead_letters l ON l.id = taken.letter_id
ORDER BY l.id
