-- Second half, in a statement of its own: the id is still there only if the transaction was not over with the statement
-- before.
SELECT pg_current_xact_id_if_assigned() IS NOT NULL
