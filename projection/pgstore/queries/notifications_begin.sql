UPDATE notifications
SET attempts = attempts + (state = 'unknown')::integer, state = 'sending', due_at = now() + $3, updated_at = now()
WHERE event_id = $1 AND claims = $2 AND state IN ('sending', 'unknown')
