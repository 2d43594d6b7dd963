INSERT INTO parked_events (consumer_group, order_id, version, event_id, digest, type, occurred_at,
                           kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers, kafka_timestamp_type, kafka_timestamp_ms)
SELECT $1, e.*
FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::text[], $7::timestamptz[],
            $8::text[], $9::uuid[], $10::integer[], $11::bigint[], $12::timestamptz[], $13::bytea[], $14::bytea[], $15::jsonb[], $16::smallint[], $17::bigint[]) AS e
ON CONFLICT DO NOTHING
