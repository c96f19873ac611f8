-- This transaction's commit waits for the disk, whatever the role's default; a stronger default stays.
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')
