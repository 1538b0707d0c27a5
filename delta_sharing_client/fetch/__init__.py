"""Downloads the bytes of files: requests, retries, reports."""
