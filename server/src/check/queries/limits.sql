SELECT current_setting('max_connections')::bigint AS max_connections,
       current_setting('superuser_reserved_connections')::bigint
           + coalesce(nullif(current_setting('reserved_connections', true), '')::bigint, 0) AS reserved_connections
