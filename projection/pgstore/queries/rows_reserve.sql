-- A row of version 0 gives an order of which nothing is applied something to lock.
INSERT INTO order_rows (order_id, version, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
                        projected_at, last_event_id, projection_status, kafka_topic, kafka_partition, kafka_offset,
                        ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests,
                        ledger_partitions, ledger_offsets)
SELECT id, 0, '', '', '', 0, 0, 0, now(), '', 'ok', '', 0, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
FROM unnest($1::text[]) AS id
ON CONFLICT DO NOTHING
