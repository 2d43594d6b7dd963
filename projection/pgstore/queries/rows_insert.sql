-- Only for orders of which it was decided that no row exists: a row that exists
-- after all is not touched, and its key not returned. So it is with an order about
-- which operators decided something: that has to be read under a lock first.
INSERT INTO order_rows (order_id, version, revision, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
                        created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
                        kafka_topic, kafka_partition, kafka_offset, archived,
                        ledger_versions, ledger_event_ids, ledger_types, ledger_states, ledger_times, ledger_digests,
                        ledger_partitions, ledger_offsets)
SELECT c.order_id, c.version, c.revision, c.customer_id, c.state, c.currency, c.total_minor, c.paid_minor, c.refunded_minor,
       c.created_at, c.updated_at, now(), c.last_event_id, c.projection_status, c.waiting_for_version,
       c.kafka_topic, c.kafka_partition, c.kafka_offset, c.archive,
       c.versions[c.archive + 1:], c.event_ids[c.archive + 1:], c.types[c.archive + 1:], c.states[c.archive + 1:],
       c.times[c.archive + 1:], c.digests[c.archive + 1:], c.partitions[c.archive + 1:], c.offsets[c.archive + 1:]
FROM unnest($1::order_row_change[]) AS c
WHERE NOT EXISTS (SELECT FROM operator_decisions d WHERE d.order_id = c.order_id AND d.undone_at IS NULL)
ON CONFLICT DO NOTHING
RETURNING order_id
