"""The programs that made the committed tables, and a check of the logs that the client writes."""
