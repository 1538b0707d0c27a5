"""Iceberg tables for tests: a catalog that shares them, and writers of tables that pyiceberg cannot write."""
