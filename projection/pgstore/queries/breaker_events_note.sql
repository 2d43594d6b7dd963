-- Nothing is noted while nothing is counted, or when another member did it just now.
WITH total AS (
    SELECT coalesce(sum(applied + duplicate + stale + conflict + parked + invalid + unsupported + illegal + ignored + held), 0)::bigint AS events
    FROM projection_watermarks WHERE consumer_group = $1
), last AS (
    SELECT noted_at, events FROM breaker_events WHERE consumer_group = $1 ORDER BY noted_at DESC LIMIT 1
)
INSERT INTO breaker_events (consumer_group, noted_at, events)
SELECT $1, now(), t.events FROM total t LEFT JOIN last l ON true
WHERE l.noted_at IS NULL OR l.events <> t.events AND l.noted_at < now() - $2::interval * 0.9
ON CONFLICT DO NOTHING
