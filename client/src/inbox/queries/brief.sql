-- A transaction of a few statements: its commit waits for the disk, whatever the role's default (a stronger one stays), and it waits for
-- nobody: who has the row works on it.
SELECT set_config('lock_timeout', '1s', true),
       CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END
