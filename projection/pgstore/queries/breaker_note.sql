-- Only enough orders are kept to know that there are many.
INSERT INTO breaker_letters AS b (consumer_group, bucket, kafka_partition, reason, letters, orders)
SELECT $1, date_bin('10 seconds', now(), 'epoch'::timestamptz), $2, r.reason, r.letters,
       ARRAY(SELECT DISTINCT hashtextextended(o.order_id, 0) FROM unnest($5::text[], $6::text[]) AS o (reason, order_id) WHERE o.reason = r.reason)
FROM unnest($3::text[], $4::bigint[]) AS r (reason, letters)
ON CONFLICT (consumer_group, bucket, kafka_partition, reason) DO UPDATE
SET letters = b.letters + excluded.letters,
    orders = CASE WHEN cardinality(b.orders) >= $7 THEN b.orders ELSE ARRAY(SELECT DISTINCT unnest(b.orders || excluded.orders)) END
