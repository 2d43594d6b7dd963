-- The head of a queue that is due first. Records that name no order are queues of their own.
SELECT id, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers,
       order_id, event_id, coalesce(version, 0), coalesce(type, ''), cause, class, failures, counted, held_at
FROM held_records h
WHERE consumer_group = $1 AND due_at <= now()
  AND (order_id = '' OR NOT EXISTS (
      SELECT FROM held_records e
      WHERE e.consumer_group = h.consumer_group AND e.order_id = h.order_id AND e.kafka_topic = h.kafka_topic AND e.topic_id = h.topic_id
        AND e.kafka_partition = h.kafka_partition AND e.kafka_offset < h.kafka_offset))
ORDER BY due_at, id
LIMIT 1
FOR UPDATE SKIP LOCKED
