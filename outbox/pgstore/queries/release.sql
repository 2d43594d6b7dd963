-- The detail of a message that is too large begins with the size of its batch.
WITH fits AS (
    SELECT f.seq FROM outbox_failures f
    WHERE f.status = 'blocked' AND f.reason = 'too_large' AND substring(f.detail FROM '^([0-9]{1,12}) bytes ')::bigint <= $1
    ORDER BY f.seq LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE outbox_failures f
SET status = 'retrying', retried_at = clock_timestamp(), retried_by = 'relay', retried_comment = format('the topic takes %s bytes now', $1::bigint)
FROM fits WHERE f.seq = fits.seq
