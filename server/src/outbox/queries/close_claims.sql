-- Batches whose last row is settled in this transaction.
DELETE FROM holdfast.outbox_claim WHERE id = ANY ($1::bigint[])
