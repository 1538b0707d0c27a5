"""Reads a whole plan: many files, in order."""
