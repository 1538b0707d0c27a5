"""Programs for developers: fuzzers, soaks, mutants, comparisons with other programs, makers of committed tables."""
