SELECT count(*) FILTER (
           WHERE consumer_group = $1
             AND (status = 'open' OR status = 'exhausted' AND $2::bigint[] IS NOT NULL)
             AND ($2::bigint[] IS NULL OR id = ANY ($2))
             AND ($3::text = '' OR reason = $3) AND ($4::text = '' OR order_id = $4) AND ($5::text = '' OR kafka_topic = $5)
             AND ($6::timestamptz IS NULL OR first_failed_at >= $6) AND ($7::timestamptz IS NULL OR first_failed_at < $7)),
       coalesce(max(id), 0)
FROM dead_letters
