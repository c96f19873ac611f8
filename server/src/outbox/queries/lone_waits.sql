-- Is there a row to be claimed alone, now?
SELECT EXISTS (SELECT 1 FROM holdfast.event_outbox
               WHERE next_attempt_at <= now() AND lone_claims >= 2 AND num_nonnulls(published_at, parked_at, claimed_at) = 0)
