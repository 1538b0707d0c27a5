"""The predicate tree, its readers (SQL, tuples) and its interpreters (Arrow, statistics, JSON hints)."""
