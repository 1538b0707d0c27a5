"""One file behind a URL becomes Arrow batches."""
