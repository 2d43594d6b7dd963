DELETE FROM parked_events p
USING unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[]) AS e (order_id, version, event_id, digest)
WHERE p.order_id = e.order_id AND p.version = e.version AND p.event_id = e.event_id AND p.digest = e.digest
