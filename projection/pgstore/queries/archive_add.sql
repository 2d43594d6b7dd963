INSERT INTO order_ledger_archive (order_id, version, event_id, type, state, occurred_at, digest, kafka_partition, kafka_offset)
SELECT order_id, version, nullif(event_id, ''), type, state, occurred_at, digest, kafka_partition, kafka_offset
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::bytea[], $8::integer[], $9::bigint[])
    AS e (order_id, version, event_id, type, state, occurred_at, digest, kafka_partition, kafka_offset)
