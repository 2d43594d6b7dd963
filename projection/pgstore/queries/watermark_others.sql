SELECT topic_id FROM projection_watermarks
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id <> $3 AND kafka_partition = $4
ORDER BY updated_at DESC
