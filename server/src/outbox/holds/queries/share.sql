-- Takes the locks of these pairs shared, without waiting; answers those that somebody has exclusively. Before the statement that
-- asks how the pairs were decided. $1: the class. $2: the keys.
SELECT k AS contended FROM unnest($2::integer[]) AS k WHERE NOT pg_try_advisory_xact_lock_shared($1::integer, k)
