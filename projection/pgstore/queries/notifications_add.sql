INSERT INTO notifications (event_id, order_id, idempotency_key, body, state, kafka_topic, topic_id, kafka_partition, kafka_offset)
SELECT *
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::integer[], $9::bigint[])
ON CONFLICT DO NOTHING
RETURNING event_id
