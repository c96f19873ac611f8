-- Whether there is a row. Asked before the insert, which would wait for whoever has it locked.
SELECT EXISTS (SELECT FROM holdfast.event_inbox WHERE envelope_id = $1::uuid AND consumer_queue = $2::text)
