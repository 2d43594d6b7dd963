-- The turns of an order's parked events: by version, then by where they came from. The window ends before the
-- values become too many bytes, which are counted without reading them.
WITH next AS (
    SELECT version, event_id, digest, type, occurred_at, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp,
           kafka_timestamp_ms, kafka_timestamp_type = 1 AS log_append_time, key, value, headers,
           sum(octet_length(value)) OVER turns - octet_length(value) AS before, row_number() OVER turns AS n
    FROM (
        SELECT * FROM parked_events
        WHERE order_id = $1 AND version >= $2
          AND (version, kafka_partition, kafka_offset, event_id, digest) > ($2, $3, $4, $5, $6)
        ORDER BY version, kafka_partition, kafka_offset, event_id, digest
        LIMIT $7 + 1
    ) AS p
    WINDOW turns AS (ORDER BY version, kafka_partition, kafka_offset, event_id, digest)
)
SELECT version, event_id, digest, type, occurred_at, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp,
       kafka_timestamp_ms, log_append_time, key, value, headers, EXISTS (SELECT FROM next WHERE n > $7 OR before >= $8)
FROM next
WHERE n <= $7 AND before < $8
ORDER BY n
