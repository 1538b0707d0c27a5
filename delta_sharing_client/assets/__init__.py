"""Assets other than tables, as a user holds them: volumes, models with their versions, and agent skills."""
