-- A failure whose message is gone is over.
WITH gone AS (
    DELETE FROM outbox_failures f WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.seq = f.seq)
)
SELECT count(*), coalesce((array_agg(b.aggregateid ORDER BY b.seq))[1], ''), coalesce((array_agg(b.reason || ': ' || b.detail ORDER BY b.seq))[1], '')
FROM outbox_failures b
WHERE b.status = 'blocked' AND EXISTS (SELECT FROM outbox o WHERE o.seq = b.seq)
