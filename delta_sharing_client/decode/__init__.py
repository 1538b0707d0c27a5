"""Reads one file into Arrow batches."""
