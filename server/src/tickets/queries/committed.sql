-- Of tickets that an EARLIER statement of this transaction found free: those that committed.
SELECT nonce FROM holdfast.ticket WHERE nonce = ANY ($1::bigint[])
