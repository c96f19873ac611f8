-- Enters a claimed batch: now() is the claimed_at of its rows, claimed in this transaction. $2: ids. $3: their keys.
INSERT INTO holdfast.outbox_claim (claimed_by, ids, keys) VALUES ($1, $2, $3) RETURNING id
