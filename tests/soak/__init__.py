"""Stress tests that take minutes, each a command: ``python -m tests.soak --help``."""
