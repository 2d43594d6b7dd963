SELECT source, order_id, amount_minor, currency, event_id FROM points_ledger WHERE source = ANY ($1::text[])
