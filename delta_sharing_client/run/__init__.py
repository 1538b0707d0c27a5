"""Many files, one after another in their order: the reading of a whole plan."""
