-- Retention (design, section 10): what is kept for a time goes after it, an hour's worth each hour.

-- What may be old enough to go, oldest first. A row enters with its stamp, which is no HOT update anyway.
CREATE INDEX event_outbox_published ON holdfast.event_outbox (created_at) WHERE published_at IS NOT NULL;

-- The cadence: when the last cycle began, and who may go on with it. In the database, so that neither more replicas nor
-- restarts make more cycles. At most one row.
CREATE TABLE holdfast.retention_cycle (
    one          boolean PRIMARY KEY DEFAULT true,
    -- Raised whenever somebody begins a cycle or goes on with one; a batch of another one is rolled back.
    generation   bigint NOT NULL,
    started_at   timestamptz NOT NULL,
    -- What the next cycle waits for beyond the interval, as a part of it.
    jitter       double precision NOT NULL,
    -- NULL: the cycle has come to its end. In the past: whoever ran it is gone, and another one goes on.
    leased_until timestamptz,
    -- Rows that the cycle has pruned so far.
    pruned       bigint NOT NULL,
    -- When a cycle last came to its end, and whether it stopped at its cap.
    succeeded_at timestamptz,
    capped       boolean NOT NULL DEFAULT false,
    CONSTRAINT retention_cycle_one_check CHECK (one)
) WITH (fillfactor = 50);
COMMENT ON TABLE holdfast.retention_cycle IS 'The cadence of retention: the cycle that runs, or ran last.';

COMMENT ON TABLE holdfast.outbox_tally IS
    'Rows that left the outbox, by reason, counted in the transaction that removed them: never published, or pruned after it.';
