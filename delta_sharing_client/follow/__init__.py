"""Follows a table from version to version: the position of a reader, and the files to read next."""
