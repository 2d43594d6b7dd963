-- A record that has a letter keeps it as it is: reading the topic again never
-- changes it. Only one that was redriven, and parked, and is refused when its turn comes, opens again.
INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers,
                          order_id, version, event_id, reason, detail, blocks, status, closed_at, kafka_timestamp_type, type, kafka_timestamp_ms, was_held)
SELECT e.consumer_group, e.kafka_topic, e.topic_id, e.kafka_partition, e.kafka_offset, e.kafka_timestamp, e.key, e.value, e.headers,
       nullif(e.order_id, ''), nullif(e.version, 0), nullif(e.event_id, ''), e.reason, e.detail, e.blocks,
       CASE WHEN e.superseded THEN 'superseded' ELSE 'open' END, CASE WHEN e.superseded THEN now() END, e.kafka_timestamp_type, nullif(e.type, ''),
       e.kafka_timestamp_ms, e.was_held
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::bytea[], $8::bytea[], $9::jsonb[],
            $10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::boolean[], $17::smallint[], $18::text[],
            $19::bigint[], $20::boolean[])
    AS e (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers,
          order_id, version, event_id, reason, detail, blocks, superseded, kafka_timestamp_type, type, kafka_timestamp_ms, was_held)
ON CONFLICT (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset) DO UPDATE
SET order_id = excluded.order_id, version = excluded.version, event_id = excluded.event_id, type = excluded.type,
    reason = excluded.reason, detail = excluded.detail, blocks = excluded.blocks, was_held = excluded.was_held,
    status = excluded.status, closed_at = excluded.closed_at, closed_by = NULL, closed_comment = NULL,
    attempts = dead_letters.attempts + 1, last_failed_at = now()
WHERE dead_letters.status = 'redriven'
