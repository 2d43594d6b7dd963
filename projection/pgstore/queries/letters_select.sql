-- The next letters in the order of their turns, by the index that is made for it.
SELECT coalesce(order_id, ''), coalesce(version, 0), id
FROM dead_letters
WHERE (coalesce(order_id, ''), coalesce(version, 0), id) > ($1, $2, $3)
  AND consumer_group = $4 AND id <= $5
  AND (status = 'open' OR status = 'exhausted' AND $6::bigint[] IS NOT NULL)
  AND ($6::bigint[] IS NULL OR id = ANY ($6))
  AND ($7::text = '' OR reason = $7) AND ($8::text = '' OR order_id = $8) AND ($9::text = '' OR kafka_topic = $9)
  AND ($10::timestamptz IS NULL OR first_failed_at >= $10) AND ($11::timestamptz IS NULL OR first_failed_at < $11)
ORDER BY coalesce(order_id, ''), coalesce(version, 0), id
LIMIT $12
