-- Another lap that began meanwhile is due at once.
UPDATE letter_copies c
SET failures = c.failures + 1, failure = e.failure, due_at = now() + e.pause
FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::interval[]) AS e (letter_id, attempts, failure, pause)
WHERE c.letter_id = e.letter_id AND c.attempts = e.attempts
