-- Which of these orders have anything at all that may hold them back: nearly
-- always none, which this finds out at a third of the cost of looking at each. Where nothing
-- holds anybody back, not even the look-ups are made.
SELECT order_id FROM parked_events
WHERE order_id = ANY ($1::text[]) AND EXISTS (SELECT FROM parked_events)
UNION
SELECT order_id FROM dead_letters
WHERE order_id = ANY ($1::text[]) AND blocks AND status IN ('open', 'exhausted')
  AND EXISTS (SELECT FROM dead_letters WHERE blocks AND status IN ('open', 'exhausted'))
