-- A message that somebody took away meanwhile blocks nothing.
INSERT INTO outbox_failures AS f (seq, aggregateid, reason, detail)
SELECT b.seq, o.aggregateid, b.reason, b.detail
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS b (seq, reason, detail)
JOIN outbox o ON o.seq = b.seq
ON CONFLICT (seq) DO UPDATE
SET aggregateid = excluded.aggregateid, reason = excluded.reason, detail = excluded.detail, status = 'blocked',
    attempts = f.attempts + 1, last_failed_at = clock_timestamp()
