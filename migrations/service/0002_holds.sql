-- Holds (design, section 5): rows that wait until their operation is released, or are dropped with it.

-- How an operation was decided, for good. Written under the pair's advisory lock only; never changed. A stage that comes later
-- asks here.
CREATE TABLE holdfast.hold_outcome (
    operation_id text NOT NULL,
    generation   bigint NOT NULL,
    outcome      text NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (operation_id, generation),
    CONSTRAINT hold_outcome_outcome_check CHECK (outcome IN ('released', 'dropped'))
);
COMMENT ON TABLE holdfast.hold_outcome IS
    'Tombstones of holds: one row a pair of operation and generation, written by ReleaseHeld or DropHeld.';
-- For who prunes them with the outbox.
CREATE INDEX hold_outcome_decided ON holdfast.hold_outcome (decided_at);

-- A pair's rows in their order, those of open transactions, too. None of these columns is written by a claim or a stamp of a
-- row without a hold, and such a row is in neither index.
CREATE INDEX event_outbox_held_pair ON holdfast.event_outbox (hold_operation_id, hold_generation, seq)
    INCLUDE (ticket, created_at)
    WHERE hold_operation_id IS NOT NULL AND published_at IS NULL;
-- What is held, and since when.
CREATE INDEX event_outbox_held ON holdfast.event_outbox (created_at)
    WHERE hold_operation_id IS NOT NULL AND ticket IS NULL AND published_at IS NULL;

-- What the watch has warned of last, so that neither a second replica nor a restart says it again. At most one row.
CREATE TABLE holdfast.hold_watch (
    one          boolean PRIMARY KEY DEFAULT true,
    operation_id text NOT NULL,
    generation   bigint NOT NULL,
    warned_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT hold_watch_one_check CHECK (one)
);
COMMENT ON TABLE holdfast.hold_watch IS 'The oldest held operation that was warned of last, and when.';
