"""Compares this client with other readers and physical limits in the same run: ``python -m benchmarks``."""
