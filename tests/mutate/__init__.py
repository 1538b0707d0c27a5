"""Mutation tests, ``python -m tests.mutate``: the code is changed in one place at a time, and some test must notice."""
