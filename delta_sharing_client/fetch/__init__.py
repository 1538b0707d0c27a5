"""Downloads the bytes of files: requests, retries, cache, reports."""
