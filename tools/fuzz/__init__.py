"""Fuzzers, each a command: ``docs/fuzzing.md`` describes them."""
