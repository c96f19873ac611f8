-- Does the table announce new events (holdfast.outbox_notify)? NULL where it cannot: an older schema.
SELECT (SELECT tgenabled <> 'D' FROM pg_trigger
        WHERE tgrelid = 'holdfast.event_outbox'::regclass AND tgname = 'event_outbox_announce')
