-- An order's points have one owner. Who that is may be learned after the first entries.
UPDATE points_ledger AS l
SET customer_id = m.customer_id
FROM unnest($1::text[], $2::text[]) AS m (order_id, customer_id)
WHERE l.order_id = m.order_id AND l.customer_id IS DISTINCT FROM m.customer_id
