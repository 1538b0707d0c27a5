"""Reads Iceberg tables: their metadata, manifests and deletes, and their conversion to actions."""
