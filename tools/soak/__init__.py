"""Stress tests that take minutes, each a command: ``python -m tools.soak --help``."""
