SELECT asked.order_id, coalesce(first.version, 0), coalesce(letters.ids, '{}'), coalesce(letters.versions, '{}')
FROM unnest($1::text[]) AS asked (order_id)
LEFT JOIN LATERAL (
    SELECT p.version FROM parked_events p WHERE p.order_id = asked.order_id ORDER BY p.version LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT array_agg(l.id ORDER BY l.id) AS ids, array_agg(l.version ORDER BY l.id) AS versions
    FROM dead_letters l
    WHERE l.order_id = asked.order_id AND l.blocks AND l.status IN ('open', 'exhausted')
) AS letters ON true
WHERE first.version IS NOT NULL OR letters.ids IS NOT NULL
