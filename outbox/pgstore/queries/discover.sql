-- OFFSET 0 keeps the planner from joining: it would read all of the blocked ones for each row while they are few.
SELECT o.seq, o.aggregateid FROM outbox o
WHERE o.seq > $1 AND o.seq <= $2
  AND NOT EXISTS (SELECT FROM outbox_failures f WHERE f.aggregateid = o.aggregateid AND f.status = 'blocked' OFFSET 0)
ORDER BY o.seq LIMIT $3
