"""Reads and writes Delta logs on disk."""
