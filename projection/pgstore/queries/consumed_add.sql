INSERT INTO consumed_events (consumer, event_id, digest, order_id, effect, kafka_topic, topic_id, kafka_partition, kafka_offset)
SELECT $1, e.*
FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::integer[], $9::bigint[]) AS e
ON CONFLICT DO NOTHING
