INSERT INTO held_records (consumer_group, projected, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type,
                          key, value, headers, order_id, event_id, version, type, cause, class, failures, counted, kafka_timestamp_ms, due_at)
SELECT $1, NOT EXISTS (SELECT FROM consumer_claims WHERE consumer_group = $1), e.kafka_topic, e.topic_id, e.kafka_partition, e.kafka_offset,
       e.kafka_timestamp, e.kafka_timestamp_type, e.key, e.value, e.headers, e.order_id, e.event_id, nullif(e.version, 0), nullif(e.type, ''),
       e.cause, e.class, e.failures, e.counted, e.kafka_timestamp_ms, now() + CASE WHEN e.failures > 0 THEN interval '1 second' ELSE '0' END
FROM unnest($2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::smallint[],
            $8::bytea[], $9::bytea[], $10::jsonb[], $11::text[], $12::text[], $13::bigint[], $14::text[], $15::text[], $16::text[],
            $17::integer[], $18::integer[], $19::bigint[])
    AS e (kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, kafka_timestamp_type, key, value, headers,
          order_id, event_id, version, type, cause, class, failures, counted, kafka_timestamp_ms)
ON CONFLICT DO NOTHING
