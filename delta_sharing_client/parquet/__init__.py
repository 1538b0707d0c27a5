"""Reads the structure of Parquet files without decoding rows: footers, pages, byte ranges. Independent of Delta."""
