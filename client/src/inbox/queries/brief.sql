-- A transaction of a few statements: its commit waits for the disk, whatever the role's default (a stronger one stays), and it waits for
-- nobody: who has the row works on it. The last: what is planned once for all arguments, while the table is still small, is not planned to
-- read it whole (its statistics come a minute later, and a backlog does not wait for them).
SELECT set_config('lock_timeout', '1s', true), set_config('enable_seqscan', 'off', true),
       CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END
