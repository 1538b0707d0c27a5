"""Programs for developers: fuzzers, soaks, comparisons with other programs, and makers of committed tables."""
