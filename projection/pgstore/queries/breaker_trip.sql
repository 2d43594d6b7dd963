INSERT INTO consumption_control AS c (consumer_group, breaker_opened_at, breaker_reason, breaker_letters, breaker_orders, breaker_events)
VALUES ($1, clock_timestamp(), $2, $3, $4, $5)
ON CONFLICT (consumer_group) DO UPDATE
SET breaker_opened_at = excluded.breaker_opened_at, breaker_reason = excluded.breaker_reason, breaker_letters = excluded.breaker_letters,
    breaker_orders = excluded.breaker_orders, breaker_events = excluded.breaker_events
WHERE c.breaker_opened_at IS NULL
