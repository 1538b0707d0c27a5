"""Iceberg tables for tests: a catalog that shares them, and a writer for tables that pyiceberg cannot write."""
