"""Batches in other people's hands: pandas, Polars, DuckDB."""
