-- Order by order, each from its first version on, whatever the messages' numbers are.
SELECT m.seq, m.id, m.aggregateid, m.version, m.type, m.payload, coalesce(m.traceparent, ''), coalesce(m.tracestate, ''), m.created_at
FROM unnest($1::text[]) AS wanted (aggregateid)
CROSS JOIN LATERAL (
    SELECT * FROM outbox o WHERE o.aggregateid = wanted.aggregateid ORDER BY o.aggregateid, o.version LIMIT $2
) AS m
WHERE NOT EXISTS (SELECT FROM outbox_failures f WHERE f.aggregateid = wanted.aggregateid COLLATE "C" AND f.status = 'blocked' OFFSET 0)
