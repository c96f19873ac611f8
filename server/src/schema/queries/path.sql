-- Names are written out with their schemas only if no search path finds them without.
SELECT set_config('search_path', 'pg_catalog', true)
