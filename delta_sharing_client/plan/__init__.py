"""From a snapshot and a request to the files that must be read."""
