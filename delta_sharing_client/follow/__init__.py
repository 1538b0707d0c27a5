"""A table followed from version to version: where a reader stands, and what comes next."""
