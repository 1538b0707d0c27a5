"""Compares this client with other readers, and with physical limits, in the same run: ``python -m benchmarks``."""
