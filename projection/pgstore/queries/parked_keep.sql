-- What stays parked keeps its age.
DELETE FROM parked_events p
WHERE p.order_id = $1 AND NOT EXISTS (
    SELECT FROM unnest($2::bigint[], $3::text[], $4::bytea[]) AS k (version, event_id, digest)
    WHERE k.version = p.version AND k.event_id = p.event_id AND k.digest = p.digest)
