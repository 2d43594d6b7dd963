-- A row is replaced as a whole, ledger and all. The guard is that of any other write.
UPDATE order_rows AS r
SET version = c.version, revision = c.revision, customer_id = c.customer_id, state = c.state, currency = c.currency,
    total_minor = c.total_minor, paid_minor = c.paid_minor, refunded_minor = c.refunded_minor,
    created_at = c.created_at, updated_at = c.updated_at, projected_at = now(), last_event_id = c.last_event_id,
    projection_status = c.projection_status, waiting_for_version = c.waiting_for_version,
    kafka_topic = c.kafka_topic, kafka_partition = c.kafka_partition, kafka_offset = c.kafka_offset,
    archived = c.archive, decided = $2,
    ledger_versions   = c.versions[c.archive + 1:],
    ledger_event_ids  = c.event_ids[c.archive + 1:],
    ledger_types      = c.types[c.archive + 1:],
    ledger_states     = c.states[c.archive + 1:],
    ledger_times      = c.times[c.archive + 1:],
    ledger_digests    = c.digests[c.archive + 1:],
    ledger_partitions = c.partitions[c.archive + 1:],
    ledger_offsets    = c.offsets[c.archive + 1:]
FROM unnest($1::order_row_change[]) AS c
WHERE r.order_id = c.order_id AND r.version = c.base_version AND r.revision = c.base_revision
RETURNING r.order_id
