INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
