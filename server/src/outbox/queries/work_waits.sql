-- The idle poll: is there anything for a pass to do? One autocommitted SELECT, an index probe each. $1: the lease.
SELECT EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE admitted_at IS NULL AND ticket IS NULL AND hold_operation_id IS NULL AND parked_at IS NULL
                 AND published_at IS NULL AND num_nonnulls(claimed_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE next_attempt_at <= now() AND lone_claims < 2 AND num_nonnulls(published_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE next_attempt_at <= now() AND lone_claims >= 2 AND num_nonnulls(published_at) = 0)
    OR EXISTS (SELECT 1 FROM holdfast.outbox_claim
               WHERE claimed_at < now() - $1::float8 * interval '1 second'
                  OR claimed_at > now() + $1::float8 * interval '1 second')
    OR EXISTS (SELECT 1 FROM holdfast.event_outbox WHERE is_head AND num_nonnulls(claimed_at) = 0)
