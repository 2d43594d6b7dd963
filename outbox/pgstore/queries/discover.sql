SELECT o.seq, o.aggregateid FROM outbox o
WHERE o.seq > $1 AND o.seq <= $2
  AND NOT EXISTS (SELECT FROM outbox_failures f WHERE f.aggregateid = o.aggregateid AND f.status = 'blocked')
ORDER BY o.seq LIMIT $3
