"""Variant columns: values, their encoding, and shredding."""
