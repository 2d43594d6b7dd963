INSERT INTO points_accounts (order_id)
SELECT * FROM unnest($1::text[])
ON CONFLICT DO NOTHING
