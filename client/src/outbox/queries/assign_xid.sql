-- First half of "is a transaction open?": gives the transaction this runs in an id, if it has none.
SELECT pg_current_xact_id()::text
