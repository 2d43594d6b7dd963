SELECT order_id, version, revision, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
       created_at, updated_at, last_event_id, projection_status, kafka_topic, kafka_partition, kafka_offset, archived,
       ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests,
       ledger_partitions, ledger_offsets, decided
FROM order_rows
WHERE order_id = ANY ($1::text[])
