SELECT next_offset, generation, ignored, invalid, duplicate, stale, conflict, parked, unsupported, illegal, applied
FROM projection_watermarks
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4
FOR NO KEY UPDATE
