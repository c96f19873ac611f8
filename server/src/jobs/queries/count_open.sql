-- Jobs that are started and not ended.
SELECT count(*) FROM holdfast.job WHERE NOT cleared AND state IN ('preparing', 'running', 'paused')
