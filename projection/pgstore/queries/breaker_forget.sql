-- Of the notes from before the window the newest is its base. Notes that count more
-- than the newest one are of other tables, which were exchanged since.
WITH base AS (
    SELECT coalesce(max(noted_at), '-infinity') AS noted_at FROM breaker_events WHERE consumer_group = $1 AND noted_at <= now() - $2::interval
), newest AS (
    SELECT events FROM breaker_events WHERE consumer_group = $1 ORDER BY noted_at DESC LIMIT 1
), letters AS (
    DELETE FROM breaker_letters WHERE consumer_group = $1 AND bucket < now() - $2::interval - interval '1 minute'
)
DELETE FROM breaker_events e
WHERE consumer_group = $1 AND (e.noted_at < (SELECT noted_at FROM base) OR e.events > (SELECT events FROM newest))
