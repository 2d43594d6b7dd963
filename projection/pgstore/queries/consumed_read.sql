SELECT event_id, order_id, digest, effect, kafka_topic, topic_id, kafka_partition, kafka_offset
FROM consumed_events
WHERE consumer = $1 AND event_id = ANY ($2::text[])
