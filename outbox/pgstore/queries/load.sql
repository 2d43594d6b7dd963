-- Order by order, each from its first version on, whatever the messages' numbers are. Sizes are those that are stored, so
-- that no payload is read which is not taken. The window has no order of its own: rows are added up as they come.
SELECT m.seq, m.id, m.aggregateid, m.version, m.type, m.payload, coalesce(m.traceparent, ''), coalesce(m.tracestate, ''), m.created_at,
       EXISTS (SELECT FROM outbox_failures f WHERE f.seq = m.seq OFFSET 0), m.before + m.bytes >= $3
FROM (
    SELECT first.*, sum(first.bytes) OVER (ROWS UNBOUNDED PRECEDING) - first.bytes AS before
    FROM unnest($1::text[]) AS wanted (aggregateid)
    CROSS JOIN LATERAL (
        SELECT o.*, 300 + pg_column_size(o.payload) + coalesce(pg_column_size(o.traceparent), 0) + coalesce(pg_column_size(o.tracestate), 0) AS bytes
        FROM outbox o WHERE o.aggregateid = wanted.aggregateid ORDER BY o.aggregateid, o.version LIMIT $2
    ) AS first
    WHERE NOT EXISTS (SELECT FROM outbox_failures f WHERE f.aggregateid = wanted.aggregateid COLLATE "C" AND f.status = 'blocked' OFFSET 0)
) AS m
WHERE m.before < $3::bigint
