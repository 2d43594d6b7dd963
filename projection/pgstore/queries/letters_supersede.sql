-- By the letters' IDs, one by one: the planner would rather look through all that wait.
UPDATE dead_letters AS l SET status = 'superseded', closed_at = now()
FROM unnest($1::bigint[]) AS c (id)
WHERE l.id = c.id AND l.status IN ('open', 'exhausted')
