-- A record that has a letter keeps it as it is: reading the topic again never changes it.
INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers,
                          order_id, version, event_id, reason, detail, blocks, status, closed_at, kafka_timestamp_type)
SELECT e.consumer_group, e.kafka_topic, e.topic_id, e.kafka_partition, e.kafka_offset, e.kafka_timestamp, e.key, e.value, e.headers,
       nullif(e.order_id, ''), nullif(e.version, 0), nullif(e.event_id, ''), e.reason, e.detail, e.blocks,
       CASE WHEN e.superseded THEN 'superseded' ELSE 'open' END, CASE WHEN e.superseded THEN now() END, e.kafka_timestamp_type
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::bytea[], $8::bytea[], $9::jsonb[],
            $10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::boolean[], $17::smallint[])
    AS e (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp, key, value, headers,
          order_id, version, event_id, reason, detail, blocks, superseded, kafka_timestamp_type)
ON CONFLICT DO NOTHING
