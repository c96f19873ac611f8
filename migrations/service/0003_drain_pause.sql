-- What operators do about an outbox (design, sections 4 and 13): the pause of its drain, and the way to list what is not out.

-- At most one row: as long as it is there, nothing of this database is claimed, by no replica. Written under the drain's
-- advisory lock, as claims are made: once the pause is committed, no claim that does not see it can still commit.
CREATE TABLE holdfast.drain_pause (
    one       boolean PRIMARY KEY DEFAULT true,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    reason    text NOT NULL,
    CONSTRAINT drain_pause_one_check CHECK (one)
);
COMMENT ON TABLE holdfast.drain_pause IS 'Who paused the drain of this service, when and why. Empty: it is not paused.';

-- Unpublished rows in their order, for pages. An expression of its own, so that no statement of the drain's finds it by the
-- way; and seq and published_at are in other indexes as well, so that a claim stays on its page (HOT) as before.
CREATE INDEX event_outbox_unpublished ON holdfast.event_outbox ((seq + 0)) WHERE published_at IS NULL;
