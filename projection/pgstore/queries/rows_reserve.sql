-- A row of version 0 gives an order of which nothing is applied something to lock.
INSERT INTO order_rows (order_id, version, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
                        projected_at, last_event_id, projection_status, kafka_topic, kafka_partition, kafka_offset,
                        ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests,
                        ledger_partitions, ledger_offsets, decided)
SELECT asked.order_id, 0, '', '', '', 0, 0, 0, now(), '', 'ok', '', 0, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
       EXISTS (SELECT FROM operator_decisions d WHERE d.order_id = asked.order_id AND d.undone_at IS NULL)
FROM unnest($1::text[]) AS asked (order_id)
ON CONFLICT DO NOTHING
