-- What freezes a set: everything that had been published for good before `published_before` (a claim that is open may stamp its rows
-- with any later time), and was staged up to `upper_seq`. `horizon`: what is older may not be replayed. $1: the horizon in
-- seconds; absent: none.
SELECT least(now(), (SELECT min(claimed_at) FROM holdfast.outbox_claim)) AS published_before,
       coalesce(pg_sequence_last_value(pg_get_serial_sequence('holdfast.event_outbox', 'seq')::regclass), 0)::bigint AS upper_seq,
       now() - $1::float8 * interval '1 second' AS horizon
