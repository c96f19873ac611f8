-- The sweeper's walk over all tickets.
SELECT nonce FROM holdfast.ticket WHERE $1::bigint IS NULL OR nonce > $1 ORDER BY nonce LIMIT $2
