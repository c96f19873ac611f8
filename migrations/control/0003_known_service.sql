-- The roster (design, section 11): which services a configuration had, and how much each had left undelivered when that was last
-- counted. A server does not start with a configuration that leaves out one that has something left.
CREATE TABLE holdfast.known_service (
    name        text PRIMARY KEY,
    first_seen  timestamptz NOT NULL DEFAULT now(),
    last_seen   timestamptz NOT NULL DEFAULT now(),
    -- NULL: never counted.
    undelivered bigint,
    counted_at  timestamptz,
    CONSTRAINT known_service_counted_check CHECK ((undelivered IS NULL) = (counted_at IS NULL))
);
COMMENT ON TABLE holdfast.known_service IS
    'Services that were configured: names and counts. `holdfast forget-service` takes one off.';
