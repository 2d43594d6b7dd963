SELECT kafka_partition, next_offset FROM projection_watermarks
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3
ORDER BY kafka_partition
FOR NO KEY UPDATE
