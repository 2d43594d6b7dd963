SELECT id, consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type = 1, key, value, headers,
       coalesce(order_id, ''), coalesce(version, 0), coalesce(event_id, ''), coalesce(type, ''), reason, detail, blocks, status, attempts
FROM dead_letters
WHERE consumer_group = $1 AND order_id = $2
ORDER BY id
