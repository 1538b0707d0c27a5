"""One predicate tree, with its readers (SQL, tuples) and its interpreters (Arrow, statistics, JSON hints)."""
