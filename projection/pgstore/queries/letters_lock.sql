SELECT id, status, attempts FROM dead_letters WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE
