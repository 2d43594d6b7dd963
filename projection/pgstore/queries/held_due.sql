WITH selected AS (
    SELECT id, order_id FROM held_records
    WHERE consumer_group = $1 AND ($2::bigint[] IS NULL OR id = ANY ($2)) AND ($3::text = '' OR order_id = $3)
), free AS (
    SELECT id FROM held_records WHERE id IN (SELECT id FROM selected) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), due AS (
    UPDATE held_records h SET due_at = now(), retried_by = $4 FROM free WHERE h.id = free.id RETURNING h.id
)
SELECT s.id, s.order_id, d.id IS NULL FROM selected s LEFT JOIN due d USING (id) ORDER BY s.id
