-- The guard: a row that is not as it was when it was decided on is not touched,
-- and its key not returned.
UPDATE order_rows AS r
SET version = c.version, revision = c.revision, customer_id = c.customer_id, state = c.state, currency = c.currency,
    total_minor = c.total_minor, paid_minor = c.paid_minor, refunded_minor = c.refunded_minor,
    created_at = c.created_at, updated_at = c.updated_at, projected_at = now(), last_event_id = c.last_event_id,
    projection_status = c.projection_status, waiting_for_version = c.waiting_for_version,
    kafka_topic = c.kafka_topic, kafka_partition = c.kafka_partition, kafka_offset = c.kafka_offset,
    archived = r.archived + c.archive,
    ledger_versions   = CASE c.archive WHEN 0 THEN r.ledger_versions   || c.versions   ELSE (r.ledger_versions   || c.versions)[c.archive + 1:]   END,
    ledger_event_ids  = CASE c.archive WHEN 0 THEN r.ledger_event_ids  || c.event_ids  ELSE (r.ledger_event_ids  || c.event_ids)[c.archive + 1:]  END,
    ledger_types      = CASE c.archive WHEN 0 THEN r.ledger_types      || c.types      ELSE (r.ledger_types      || c.types)[c.archive + 1:]      END,
    ledger_states     = CASE c.archive WHEN 0 THEN r.ledger_states     || c.states     ELSE (r.ledger_states     || c.states)[c.archive + 1:]     END,
    ledger_times      = CASE c.archive WHEN 0 THEN r.ledger_times      || c.times      ELSE (r.ledger_times      || c.times)[c.archive + 1:]      END,
    ledger_digests    = CASE c.archive WHEN 0 THEN r.ledger_digests    || c.digests    ELSE (r.ledger_digests    || c.digests)[c.archive + 1:]    END,
    ledger_partitions = CASE c.archive WHEN 0 THEN r.ledger_partitions || c.partitions ELSE (r.ledger_partitions || c.partitions)[c.archive + 1:] END,
    ledger_offsets    = CASE c.archive WHEN 0 THEN r.ledger_offsets    || c.offsets    ELSE (r.ledger_offsets    || c.offsets)[c.archive + 1:]    END
FROM unnest($1::order_row_change[]) AS c
WHERE r.order_id = c.order_id AND r.version = c.base_version AND r.revision = c.base_revision
RETURNING r.order_id
