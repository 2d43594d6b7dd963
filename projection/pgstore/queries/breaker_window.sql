-- The events of the window are those counted since the last note from before it, or
-- since the first one. Without any note nobody knows how many there were.
WITH recent AS (
    SELECT reason, letters, orders FROM breaker_letters WHERE consumer_group = $1 AND bucket >= now() - $2::interval
), counted AS (
    SELECT coalesce(sum(applied + duplicate + stale + conflict + parked + invalid + unsupported + illegal + ignored + held), 0)::bigint
           - coalesce((SELECT events FROM breaker_events WHERE consumer_group = $1 AND noted_at <= now() - $2::interval ORDER BY noted_at DESC LIMIT 1),
                      (SELECT events FROM breaker_events WHERE consumer_group = $1 ORDER BY noted_at LIMIT 1)) AS events
    FROM projection_watermarks WHERE consumer_group = $1
)
SELECT r.reason, sum(r.letters)::bigint,
       (SELECT count(DISTINCT o) FROM recent x CROSS JOIN LATERAL unnest(x.orders) AS o WHERE x.reason = r.reason),
       coalesce((SELECT events FROM counted), -1)
FROM recent r
GROUP BY r.reason
