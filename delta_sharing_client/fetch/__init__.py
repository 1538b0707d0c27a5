"""Bytes of files behind URLs: requests, retries, memory, cache."""
