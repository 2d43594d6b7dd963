INSERT INTO operator_decisions (order_id, kind, from_version, to_version, letter_id, kafka_topic, topic_id, kafka_partition, kafka_offset,
                                digest, substitute, by_coordinates, actor, comment)
VALUES ($1, $2, $3, $4, nullif($5::bigint, 0), $6, $7, $8, $9, $10, $11, $12, $13, $14)
RETURNING id, decided_at
