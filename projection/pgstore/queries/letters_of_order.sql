SELECT id, consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers,
       coalesce(order_id, ''), coalesce(version, 0), coalesce(event_id, ''), coalesce(type, ''), reason, detail, blocks, status, attempts
FROM dead_letters
WHERE order_id = $2
  AND consumer_group || '' = $1 -- not by its index: nearly every letter is of the group
ORDER BY id
