-- The turns of an order's parked events: by version, then by where they came from.
SELECT version, event_id, digest, type, occurred_at, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp,
       kafka_timestamp_ms, kafka_timestamp_type = 1, key, value, headers
FROM parked_events
WHERE order_id = $1 AND version >= $2
  AND (version, kafka_partition, kafka_offset, event_id, digest) > ($2, $3, $4, $5, $6)
ORDER BY version, kafka_partition, kafka_offset, event_id, digest
LIMIT $7
