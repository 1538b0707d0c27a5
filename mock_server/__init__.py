"""A server of the Delta Sharing protocol over local Delta tables, for demos, tests and benchmarks."""
