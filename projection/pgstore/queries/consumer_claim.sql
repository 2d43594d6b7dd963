-- A group with watermarks that nobody has claimed is the projector's.
INSERT INTO consumer_claims (consumer_group, consumer)
SELECT $1, $2
WHERE NOT EXISTS (SELECT FROM projection_watermarks WHERE consumer_group = $1)
ON CONFLICT DO NOTHING
