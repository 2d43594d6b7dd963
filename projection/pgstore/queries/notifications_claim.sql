-- What is sending and due belongs to a claim that ran out: the receiver may have acted.
UPDATE notifications AS n
SET state = CASE n.state WHEN 'pending' THEN 'sending' ELSE 'unknown' END,
    attempts = n.attempts + (n.state = 'pending')::integer,
    claims = n.claims + 1, claimed_by = $1, due_at = now() + $3, updated_at = now()
FROM (
    SELECT event_id FROM notifications
    WHERE state IN ('pending', 'sending', 'unknown') AND due_at <= now()
    ORDER BY due_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS due
WHERE n.event_id = due.event_id
RETURNING n.event_id, n.order_id, n.idempotency_key, n.body, n.state, n.attempts, n.failures, n.claims
