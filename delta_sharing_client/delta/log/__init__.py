"""What a Delta log is on disk, read and written."""
