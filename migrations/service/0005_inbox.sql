-- The inbox (design, section 6): which message was processed by which of the service's queues.

-- One row a message and queue. Its state is the first that holds: processed (processed_at), dead-lettered (dead_lettered_at), to
-- be dead-lettered (cause), begun (ticket, or a lease), else waiting for its next delivery.
CREATE TABLE holdfast.event_inbox (
    envelope_id      uuid NOT NULL,
    consumer_queue   text NOT NULL,
    source_service   text NOT NULL DEFAULT '',
    event_type       text NOT NULL DEFAULT '',
    -- When the present series of attempts began; its whole seconds are part of the dead letter's token, so that no two series of a
    -- row share one.
    received_at      timestamptz NOT NULL DEFAULT now(),
    processed_at     timestamptz,
    -- Not NULL: begun in that ticket's transaction, which was not seen to have ended.
    ticket           bigint,
    -- Not NULL: begun with a lease. The token is its holder's, by which he is known again.
    lease_token      uuid,
    lease_until      timestamptz,
    -- Raised by each start; whoever ends a start names it.
    generation       bigint NOT NULL DEFAULT 0,
    begun_at         timestamptz,
    -- How the last start ended, unless it is the processed one. The last two are starts that ended in nothing.
    ended            text,
    -- Of the present series.
    failures         integer NOT NULL DEFAULT 0,
    lost_starts      integer NOT NULL DEFAULT 0,
    -- Not NULL: the series is over.
    cause            text,
    dead_lettered_at timestamptz,
    -- How often a new series was begun, and the newest replay that brought the message.
    cycle            integer NOT NULL DEFAULT 0,
    replay_id        uuid,
    redelivered      boolean NOT NULL DEFAULT false,
    last_error       text,
    PRIMARY KEY (envelope_id, consumer_queue),
    CONSTRAINT event_inbox_begun_check CHECK (num_nonnulls(ticket, lease_until) <= 1),
    CONSTRAINT event_inbox_processed_check CHECK (
        processed_at IS NULL OR num_nonnulls(ticket, lease_until, cause, dead_lettered_at) = 0),
    CONSTRAINT event_inbox_over_check CHECK (cause IS NULL OR num_nonnulls(ticket, lease_until) = 0),
    CONSTRAINT event_inbox_dead_check CHECK (dead_lettered_at IS NULL OR cause IS NOT NULL),
    CONSTRAINT event_inbox_ended_check CHECK (ended IN ('failed', 'given_back', 'rolled_back', 'lapsed')),
    CONSTRAINT event_inbox_cause_check CHECK (cause IN ('failures', 'lost_starts', 'asked'))
) WITH (
    -- A row is written twice in its life, seldom more often.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);
COMMENT ON TABLE holdfast.event_inbox IS
    'The inbox: one row a message and consumer queue. What is processed takes no effect again.';

-- For who prunes.
CREATE INDEX event_inbox_received ON holdfast.event_inbox (received_at);
-- The resolver's path: tickets to be asked.
CREATE INDEX event_inbox_undecided ON holdfast.event_inbox (ticket) WHERE ticket IS NOT NULL;
-- What is measured: leases, and what waits to be dead-lettered.
CREATE INDEX event_inbox_leased ON holdfast.event_inbox (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX event_inbox_over ON holdfast.event_inbox (received_at) WHERE cause IS NOT NULL AND dead_lettered_at IS NULL;
