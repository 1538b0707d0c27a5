"""Mutation tests, ``python -m tests.mutate``: each change of one place in the code must make a test fail."""
