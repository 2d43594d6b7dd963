SELECT id, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers,
       order_id, event_id, coalesce(version, 0), coalesce(type, ''), cause, class, failures, counted, held_at
FROM held_records
WHERE consumer_group = $1 AND order_id = $2
ORDER BY kafka_topic, topic_id, kafka_partition, kafka_offset
FOR UPDATE
