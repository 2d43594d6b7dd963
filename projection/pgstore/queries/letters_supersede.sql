UPDATE dead_letters SET status = 'superseded', closed_at = now()
WHERE id = ANY ($1::bigint[]) AND status IN ('open', 'exhausted')
