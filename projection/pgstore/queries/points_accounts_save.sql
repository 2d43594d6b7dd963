UPDATE points_accounts AS a
SET ordered_customer = nullif(c.ordered, ''), paid_customer = nullif(c.paid, ''), paid_source = nullif(c.paid_source, ''),
    refunded_customer = nullif(c.refunded, ''), refunded_source = nullif(c.refunded_source, '')
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
    AS c (order_id, ordered, paid, paid_source, refunded, refunded_source)
WHERE a.order_id = c.order_id
