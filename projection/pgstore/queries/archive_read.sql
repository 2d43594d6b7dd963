SELECT a.order_id, a.version, coalesce(a.event_id, ''), a.type, a.state, a.occurred_at, a.digest, a.kafka_partition, a.kafka_offset
FROM unnest($1::text[], $2::bigint[]) AS asked (order_id, version)
JOIN order_ledger_archive a ON a.order_id = asked.order_id AND a.version = asked.version
UNION
SELECT a.order_id, a.version, coalesce(a.event_id, ''), a.type, a.state, a.occurred_at, a.digest, a.kafka_partition, a.kafka_offset
FROM unnest($1::text[], $3::text[]) AS asked (order_id, event_id)
JOIN order_ledger_archive a ON a.order_id = asked.order_id AND a.event_id = asked.event_id
