SELECT id, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers,
       order_id, event_id, cause, failures, counted
FROM held_records
WHERE consumer_group = $1 AND due_at <= now()
ORDER BY due_at, id
LIMIT $2
FOR UPDATE SKIP LOCKED
