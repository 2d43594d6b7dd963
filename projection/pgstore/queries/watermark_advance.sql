UPDATE projection_watermarks
SET next_offset = greatest(next_offset, $5), lost_offsets = lost_offsets + $6,
    ignored = ignored + $7, invalid = invalid + $8, duplicate = duplicate + $9, stale = stale + $10, conflict = conflict + $11,
    parked = parked + $12, unsupported = unsupported + $13, illegal = illegal + $14, applied = applied + $15, held = held + $16, updated_at = now()
WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4
