-- Who starts jobs does so one at a time, so that a limit on their number is one. A lock of a class of its own, waited for with nothing
-- else in hand.
SELECT pg_advisory_xact_lock(1213156422, 1)
