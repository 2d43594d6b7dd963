-- Candidates are found by hopping over the index, an order at a time, so that
-- one look costs the same however many events are parked.
WITH RECURSIVE parked (order_id, n) AS (
    (SELECT order_id, 1 FROM parked_events WHERE order_id > $1 ORDER BY order_id LIMIT 1)
    UNION ALL
    SELECT (SELECT p.order_id FROM parked_events p WHERE p.order_id > parked.order_id ORDER BY p.order_id LIMIT 1), n + 1
    FROM parked WHERE parked.order_id IS NOT NULL AND n < $2
), letters AS (
    SELECT order_id, version FROM dead_letters
    WHERE order_id > $1 AND blocks AND status IN ('open', 'exhausted')
    ORDER BY order_id LIMIT $2
), candidates AS (
    SELECT order_id FROM parked WHERE order_id IS NOT NULL
    UNION
    SELECT order_id FROM letters
    ORDER BY order_id LIMIT $2
)
SELECT c.order_id,
       EXISTS (SELECT FROM parked_events p WHERE p.order_id = c.order_id AND p.version <= coalesce(r.version, 0) + 1)
       OR EXISTS (SELECT FROM dead_letters l WHERE l.order_id = c.order_id AND l.blocks
                  AND l.status IN ('open', 'exhausted')
                  -- a letter of a held record was written without its order's row
                  AND (l.version <= r.version OR l.was_held AND l.version = coalesce(r.version, 0) + 1 AND r.projection_status IS DISTINCT FROM 'blocked'))
FROM candidates c
LEFT JOIN order_rows r ON r.order_id = c.order_id
ORDER BY c.order_id
