INSERT INTO held_records (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type,
                          key, value, headers, order_id, event_id, cause, kafka_timestamp_ms, due_at)
SELECT $1, e.*, now() + interval '1 second'
FROM unnest($2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::smallint[],
            $8::bytea[], $9::bytea[], $10::jsonb[], $11::text[], $12::text[], $13::text[], $14::bigint[]) AS e
ON CONFLICT DO NOTHING
