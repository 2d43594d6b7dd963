-- A failure counts only when others succeeded since the one before.
UPDATE held_records AS h
SET failures = h.failures + 1, counted = h.counted + (a.applied > h.applied_then)::integer, applied_then = a.applied,
    cause = $2, due_at = now() + $3
FROM (SELECT coalesce(sum(w.applied), 0)::bigint AS applied
      FROM held_records o LEFT JOIN projection_watermarks w ON w.consumer_group = o.consumer_group
      WHERE o.id = $1) AS a
WHERE h.id = $1
RETURNING counted
