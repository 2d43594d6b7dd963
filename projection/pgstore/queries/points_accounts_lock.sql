SELECT order_id, coalesce(ordered_customer, ''), coalesce(paid_customer, ''), coalesce(paid_source, ''),
       coalesce(refunded_customer, ''), coalesce(refunded_source, '')
FROM points_accounts
WHERE order_id = ANY ($1::text[])
ORDER BY order_id
FOR NO KEY UPDATE
