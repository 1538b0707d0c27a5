"""Mutation tests, ``python -m tests.mutate``: the code is changed in one place at a time, and a test must fail."""
