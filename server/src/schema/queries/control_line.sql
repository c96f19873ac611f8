SELECT version, success, checksum FROM holdfast.control_migrations ORDER BY version
