SELECT id, order_id, kind, from_version, to_version, coalesce(letter_id, 0), coalesce(kafka_topic, ''), topic_id, coalesce(kafka_partition, 0),
       coalesce(kafka_offset, 0), digest, substitute, by_coordinates, actor, comment, decided_at, undone_at, undone_by, undone_comment
FROM operator_decisions
WHERE ($1::bigint = 0 OR id = $1) AND ($2::text = '' OR order_id = $2) AND ($3::boolean OR undone_at IS NULL) AND ($4::bigint = 0 OR id < $4)
ORDER BY id DESC
LIMIT $5
