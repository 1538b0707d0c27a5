"""Mutation tests, ``python -m tools.mutate``: each change of one place in the code must make a test fail."""
