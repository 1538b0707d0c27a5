"""Plans which files a request reads, of a snapshot or of a change feed."""
