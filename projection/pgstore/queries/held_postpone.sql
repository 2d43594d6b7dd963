UPDATE held_records AS h
SET failures = h.failures + 1, counted = h.counted + 1, cause = $2, due_at = now() + $3
WHERE h.id = $1
RETURNING counted
