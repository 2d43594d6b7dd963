-- Whoever remembers the row misses the guard from now on.
UPDATE order_rows SET decided = true, revision = revision + 1 WHERE order_id = $1
