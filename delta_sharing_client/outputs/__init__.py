"""Converts batches to pandas, Polars, DuckDB and files."""
