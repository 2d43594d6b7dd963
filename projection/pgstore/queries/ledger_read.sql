SELECT order_id, version, coalesce(event_id, ''), type, state, occurred_at, digest, kafka_partition, kafka_offset
FROM order_events
WHERE order_id = $1
ORDER BY version
