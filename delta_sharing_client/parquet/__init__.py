"""What a Parquet file is, without decoding a row. Knows no Delta."""
