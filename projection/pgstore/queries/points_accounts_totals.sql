-- The sums fit: an entry that would break that is refused.
SELECT order_id, currency,
       coalesce(sum(amount_minor) FILTER (WHERE kind = 'payment'), 0)::bigint,
       coalesce(sum(amount_minor) FILTER (WHERE kind = 'refund'), 0)::bigint
FROM points_ledger
WHERE order_id = ANY ($1::text[])
GROUP BY order_id, currency
