"""From a snapshot or a change feed and a request to the files to read."""
