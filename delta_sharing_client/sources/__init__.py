"""A table of a share, by server, by its log, or by an Iceberg catalog."""
