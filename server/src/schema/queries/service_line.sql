SELECT version, success, checksum FROM holdfast.schema_migrations ORDER BY version
