SELECT DISTINCT order_id FROM held_records
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4 AND order_id = ANY ($5::text[])
