UPDATE held_records
SET failures = $2, counted = $3, cause = $4, class = $5, due_at = now() + $6, failed_at = now()
WHERE id = $1
