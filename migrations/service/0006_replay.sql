-- Jobs that go on slice by slice, whoever starts and dies; and the first of them, replay (design, section 8).

-- One row a job. What any job has: who asked, where it is, who works on it, how fast, and its books.
CREATE TABLE holdfast.job (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL,
    state        text NOT NULL,
    requested_by text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- A plan that nobody has run by then is none any more.
    expires_at   timestamptz,
    started_at   timestamptz,
    ended_at     timestamptz,
    -- Why it is paused, or ended, for people.
    reason       text,
    -- Whoever claims a slice raises it; what a slice of another one wants to write changes nothing.
    generation   bigint NOT NULL DEFAULT 0,
    leased_by    text,
    leased_until timestamptz,
    -- How many rows the slice under way may do.
    booked       integer NOT NULL DEFAULT 0,
    -- Each claim moves it on by what its slice may take: one rate, however many replicas there are.
    next_at      timestamptz NOT NULL DEFAULT now(),
    -- Rows a second.
    max_rate     integer NOT NULL,
    -- Most rows of a slice: it grows tenfold with each that went well. NULL: no ramp.
    ramp         integer,
    -- A share of failures above which the job pauses itself.
    max_failures double precision NOT NULL,
    matched      bigint NOT NULL DEFAULT 0,
    done         bigint NOT NULL DEFAULT 0,
    failed       bigint NOT NULL DEFAULT 0,
    expired      bigint NOT NULL DEFAULT 0,
    pruned       bigint NOT NULL DEFAULT 0,
    -- Nothing of it is left to be done, nor to be cleared away.
    cleared      boolean NOT NULL DEFAULT false,
    CONSTRAINT job_state_check CHECK (state IN ('planned', 'preparing', 'running', 'paused', 'done', 'cancelled')),
    CONSTRAINT job_ended_check CHECK ((state IN ('done', 'cancelled')) = (ended_at IS NOT NULL)),
    CONSTRAINT job_lease_check CHECK ((leased_by IS NULL) = (leased_until IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE holdfast.job IS 'Jobs: planned, under way, and ended ones, for as long as they are remembered.';
-- Few at any time: what there is to do, and what is listed.
CREATE INDEX job_open ON holdfast.job (next_at) WHERE NOT cleared AND state <> 'planned';

-- What a replay is about. Its set is frozen: events of the window that had been published for good before `published_before`.
CREATE TABLE holdfast.replay (
    job_id           uuid PRIMARY KEY REFERENCES holdfast.job (id) ON DELETE CASCADE,
    window_from      timestamptz NOT NULL,
    window_to        timestamptz NOT NULL,
    event_type       text,
    ordering_key     text,
    upper_seq        bigint NOT NULL,
    published_before timestamptz NOT NULL,
    -- Events of the window that are not part of it.
    not_published    bigint NOT NULL DEFAULT 0,
    -- Copied up to this created_at; NULL: not begun.
    copied_to        timestamptz,
    copied           bigint NOT NULL DEFAULT 0,
    -- Nothing up to this seq is left to be sent.
    sent_to          bigint NOT NULL DEFAULT 0,
    CONSTRAINT replay_window_check CHECK (window_from < window_to)
) WITH (fillfactor = 50);
COMMENT ON TABLE holdfast.replay IS 'What each replay is about, and how far it has come.';

-- The replays' own lane: what is still to be sent, in the order of staging, and what failed. The outbox's row stays published.
CREATE TABLE holdfast.replay_row (
    job_id   uuid NOT NULL REFERENCES holdfast.job (id) ON DELETE CASCADE,
    seq      bigint NOT NULL,
    event_id uuid NOT NULL,
    -- NULL: still to be sent.
    error    text,
    PRIMARY KEY (job_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);
COMMENT ON TABLE holdfast.replay_row IS 'Events that replays have still to send, and those they could not.';
CREATE INDEX replay_row_failed ON holdfast.replay_row (job_id, seq) WHERE error IS NOT NULL;
