SELECT l.id, consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers,
       coalesce(order_id, ''), coalesce(version, 0), coalesce(event_id, ''), coalesce(type, ''), reason, detail, blocks, status, attempts
FROM unnest($2::bigint[]) AS asked (id)
JOIN dead_letters l ON l.id = asked.id
WHERE consumer_group = $1
ORDER BY l.id
