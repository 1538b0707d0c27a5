"""The scan engine: files behind URLs become Arrow batches."""
