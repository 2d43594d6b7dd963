-- The due letters up to a number and a size, without reading the records of those behind.
SELECT l.id, l.consumer_group, l.attempts, l.kafka_topic, l.topic_id, l.kafka_partition, l.kafka_offset,
       l.kafka_timestamp, l.kafka_timestamp_ms, l.kafka_timestamp_type = 1, l.key, l.value, l.headers,
       coalesce(l.order_id, ''), coalesce(l.event_id, ''), coalesce(l.version, 0), l.reason, l.detail,
       l.first_failed_at, l.last_failed_at, due.failures
FROM (
    SELECT letter_id, failures, sum(bytes) OVER (ORDER BY due_at, letter_id) - bytes AS before
    FROM (
        SELECT letter_id, failures, bytes, due_at FROM letter_copies
        WHERE consumer_group = $1 AND copied_attempts < attempts AND due_at <= now()
        ORDER BY due_at, letter_id LIMIT $2
    ) AS first
) AS due
JOIN dead_letters l ON l.id = due.letter_id
WHERE due.before < $3
ORDER BY l.id
