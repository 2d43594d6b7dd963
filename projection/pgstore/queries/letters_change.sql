-- What a letter says of its record is replaced only when the record was refused again.
UPDATE dead_letters AS l
SET status = c.status, attempts = c.attempts,
    last_failed_at = CASE WHEN c.attempts > l.attempts THEN now() ELSE l.last_failed_at END,
    closed_at      = CASE WHEN c.status NOT IN ('open', 'exhausted') THEN now() END,
    closed_by      = nullif(c.closed_by, ''),
    closed_comment = nullif(c.closed_comment, ''),
    order_id       = CASE WHEN c.refused THEN nullif(c.order_id, '') ELSE l.order_id END,
    version        = CASE WHEN c.refused THEN nullif(c.version, 0) ELSE l.version END,
    event_id       = CASE WHEN c.refused THEN nullif(c.event_id, '') ELSE l.event_id END,
    type           = CASE WHEN c.refused THEN nullif(c.type, '') ELSE l.type END,
    reason         = CASE WHEN c.refused THEN c.reason ELSE l.reason END,
    detail         = CASE WHEN c.refused THEN c.detail ELSE l.detail END,
    blocks         = CASE WHEN c.refused THEN c.blocks ELSE l.blocks END
FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::bigint[], $9::text[], $10::text[],
            $11::text[], $12::text[], $13::boolean[])
    AS c (id, status, attempts, closed_by, closed_comment, refused, order_id, version, event_id, type, reason, detail, blocks)
WHERE l.id = c.id
