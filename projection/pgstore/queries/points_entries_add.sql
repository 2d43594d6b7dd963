INSERT INTO points_ledger (source, customer_id, order_id, delta, kind, amount_minor, currency, event_id, occurred_at,
                           kafka_topic, topic_id, kafka_partition, kafka_offset)
SELECT e.source, nullif(e.customer_id, ''), e.order_id, e.delta, e.kind, e.amount_minor, e.currency, e.event_id, e.occurred_at,
       e.kafka_topic, e.topic_id, e.kafka_partition, e.kafka_offset
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[],
            $10::text[], $11::uuid[], $12::integer[], $13::bigint[])
    AS e (source, customer_id, order_id, delta, kind, amount_minor, currency, event_id, occurred_at, kafka_topic, topic_id, kafka_partition, kafka_offset)
ON CONFLICT DO NOTHING
