-- A failure counts only when another notification was sent since the one before: an outage is not poison.
UPDATE notifications AS n
SET state = CASE WHEN $3 = 'pending' AND f.failures >= $10 THEN 'failed' ELSE $3 END,
    failures = f.failures,
    attempts = n.attempts - $5::boolean::integer,
    claimed_by = NULL,
    due_at = CASE WHEN $9 THEN 'infinity' ELSE now() + $8 END,
    last_status = nullif($6, 0), last_error = nullif($7, ''),
    failed_at = CASE WHEN $4 THEN now() ELSE n.failed_at END,
    sent_at = CASE WHEN $3 = 'sent' THEN now() ELSE n.sent_at END,
    updated_at = now()
FROM (
    SELECT o.failures + ($4 AND EXISTS (
        SELECT FROM notifications s WHERE s.state = 'sent' AND s.sent_at > coalesce(o.failed_at, o.created_at)
    ))::integer AS failures
    FROM notifications o WHERE o.event_id = $1
) AS f
WHERE n.event_id = $1 AND n.claims = $2 AND n.state IN ('sending', 'unknown')
RETURNING n.state
