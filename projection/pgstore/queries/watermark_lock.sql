SELECT next_offset, generation, ignored, invalid, duplicate, stale, conflict, parked, unsupported, illegal, applied, held,
       coalesce(skipped_from, 0), coalesce(skipped_to, 0)
FROM projection_watermarks
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4
FOR NO KEY UPDATE
